"""A small model and its task, right numbers by plain PyTorch hooks, and every entrance as one function."""

from dataclasses import dataclass, replace

import torch
from torch.nn.functional import cross_entropy

import circuits
from circuits import Circuit, Examples, Roles, evaluate, run_ablated, validate
from circuits.averages import averages
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from tests.architectures import LENGTH, SIZES, VOCABULARY

SOURCE, END = 3, 9
CIRCUIT = Circuit({"L1H0": {"end": "source"}, "L0H0": "uniform"})


@dataclass
class Copying:
    """The token at ``source`` is asked for at ``end``; instances of a group ``kind``."""

    roles: tuple = ("source", "end")
    loss_components: tuple = ("nll",)
    output_roles: tuple = ("end",)

    def examples(self, n, seed):
        tokens = torch.randint(3, VOCABULARY, (n, LENGTH), generator=torch.Generator().manual_seed(seed))
        places = {"source": torch.full((n,), SOURCE), "end": torch.full((n,), END)}
        kinds = {"source": torch.arange(n) % 3, "end": torch.zeros(n, dtype=torch.long)}
        return Examples(tokens, tokens[:, SOURCE], Roles.of(places, {"kind": kinds}))

    def losses(self, outputs, examples):
        return cross_entropy(outputs[:, END].float(), examples.targets, reduction="none")[:, None]


def small_model(**changes):
    kind = {"act_fn": "gelu_new", "normalization_type": "LN", "device": "cpu", "seed": 0}
    model = HookedTransformer(HookedTransformerConfig(**SIZES | kind | changes))
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):  # the same with every version of TransformerLens
            weights.fill_(name.endswith("ln1.w") or name.endswith("ln2.w") or name.endswith("final.w"))
            weights.add_(torch.randn(weights.shape, generator=drawn) * 0.2)
        asking = model.blocks[1].attn  # L1H0 looks at the source, and the readout is fitted to what it brings
        model.pos_embed.W_pos[SOURCE, 0] += 4
        asking.W_K[0, 0, 0] += 1
        asking.b_Q[0, 0] += 10
        asking.W_V[0] *= 6
        examples = Copying().examples(4096, 1)
        _, seen = model.eval().run_with_cache(examples.inputs, names_filter="ln_final.hook_normalized")
        stream = torch.cat([seen["ln_final.hook_normalized"][:, END], torch.ones(4096, 1)], dim=1)
        answers = 10 * torch.nn.functional.one_hot(examples.targets, VOCABULARY).float()
        # what is normalised is not of full rank
        fitted = torch.linalg.lstsq(stream, answers, rcond=1e-4, driver="gelsd").solution
        model.unembed.W_U.copy_(fitted[:-1])
        model.unembed.b_U.copy_(fitted[-1])
    return model


def uniform():
    rows = torch.ones(LENGTH, LENGTH).tril()
    return rows / rows.sum(dim=1, keepdim=True)


def plain_losses(model, task, examples, patterns):
    return task.losses(plain_outputs(model, examples, patterns), examples)


def plain_outputs(model, examples, patterns):
    """The outputs with the patterns of some heads replaced by plain PyTorch hooks."""
    handles = []
    for (layer, head), pattern in patterns.items():

        def replaced(module, inputs, own, head=head, pattern=pattern):
            own = own.clone()
            own[:, head] = pattern
            return own

        handles.append(model.blocks[layer].attn.hook_pattern.register_forward_hook(replaced))
    with torch.no_grad():
        outputs = model(examples.inputs)
    for handle in handles:
        handle.remove()
    return outputs


class Answering(Copying):
    """Asked for the model's own outputs at ``END``: whatever its heads do, they do it for this task."""

    def __init__(self, task, model):
        super().__init__(task.roles, task.loss_components, task.output_roles)
        self.task, self.model = task, model

    def examples(self, n, seed):
        given = self.task.examples(n, seed)
        with torch.no_grad():
            return replace(given, targets=self.model(given.inputs)[:, END])

    def losses(self, outputs, examples):
        return (outputs[:, END] - examples.targets).square().mean(dim=1, keepdim=True)


class Gives(Copying):
    """Gives the examples that a function makes of the task, a number and a seed."""

    def __init__(self, give):
        super().__init__()
        self.give = give

    def examples(self, n, seed):
        return self.give(Copying(), n, seed)


class Loses(Copying):
    """Gives the losses that a function makes of the right ones."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def losses(self, outputs, examples):
        return self.change(super().losses(outputs, examples))


ENTRANCES = {
    "validate": lambda model, task: validate(model, task, CIRCUIT, n_examples=32),
    "discover": lambda model, task: circuits.discover(model, task, n_examples=32, threshold=0.9),
    "evaluate": lambda model, task: evaluate(model, task, Copying().examples(4, 0), [CIRCUIT]),
    "path_patching": lambda model, task: circuits.path_patching(model, task, CIRCUIT, n_examples=4),
    "self_consistency": lambda model, task: circuits.self_consistency(model, task, CIRCUIT, n_examples=32),
    "explore": lambda model, task: circuits.explore(model, task, CIRCUIT),
}

ON_MODELS = {
    **ENTRANCES,
    "run_ablated": lambda model, task: run_ablated(model, CIRCUIT, Copying().examples(4, 0)),
    "ablated": lambda model, task: circuits.ablated(model, CIRCUIT, Copying().examples(4, 0).roles),
    "averages": lambda model, task: averages(model, task, n_examples=8),
    "attention_viewer": lambda model, task: circuits.attention_viewer(model, Copying().examples(4, 0)),
    "step_by_step": lambda model, task: circuits.step_by_step(model, task, CIRCUIT, n_stories=2),
    "role_attention": lambda model, task: circuits.role_attention(model, Copying().examples(4, 0)),
}

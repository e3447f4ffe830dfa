"""Ordinary mistakes end in the right number, or in one line before any work.

The right numbers come from plain PyTorch hooks and patterns written down here.
"""

import copy
import gc
import os
import pickle
import random
import subprocess
import sys
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import circuits
from circuits import BadInput, Circuit, Condition, Examples, Head, OneHot, Roles, evaluate, run_ablated, validate
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from tests.architectures import bridge

VOCABULARY, LENGTH, SOURCE, END = 31, 12, 3, 9
CIRCUIT = Circuit({"L1H0": {"end": "source"}, "L0H0": "uniform"})
EVERY = Circuit({f"L{layer}H{head}": "identity" for layer in range(2) for head in range(4)})


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
    sizes = {"n_layers": 2, "n_heads": 4, "d_model": 32, "d_head": 8, "n_ctx": 32, "d_vocab": VOCABULARY, "d_mlp": 48}
    kind = {"act_fn": "gelu_new", "normalization_type": "LN", "device": "cpu", "seed": 0}
    model = HookedTransformer(HookedTransformerConfig(**sizes, **kind, **changes))
    drawn = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(torch.randn(weights.shape, generator=drawn) * 0.15)
    return model.eval()


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def examples():
    return Copying().examples(16, 0)


def uniform():
    rows = torch.ones(LENGTH, LENGTH).tril()
    return rows / rows.sum(dim=1, keepdim=True)


def plain_losses(model, task, examples, patterns):
    """The losses with the patterns of some heads replaced by plain PyTorch hooks."""
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
    return task.losses(outputs, examples)


@pytest.mark.parametrize(
    "picked",
    [
        [(torch.tensor(0), torch.tensor(1)), (torch.tensor(1), torch.tensor(2))],
        [tuple(row) for row in np.array([[0, 1], [1, 2]])],
        [*torch.tensor([[0, 1], [1, 2]])],
        ["L0H1", (1, np.int32(2))],
    ],
    ids=["tensors", "numpy", "rows of a tensor", "mixed"],
)
def test_heads_given_as_integers_of_any_library_are_ablated(model, examples, picked, tmp_path):
    task, circuit = Copying(), Circuit({Head.of(head): "uniform" for head in picked})
    expected = plain_losses(model, task, examples, {(0, 1): uniform(), (1, 2): uniform()})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)
    assert torch.allclose(task.losses(run_ablated(model, circuit, examples), examples), expected, atol=1e-5)
    assert circuit.digest == Circuit({"L0H1": "uniform", "L1H2": "uniform"}).digest
    circuits.save_circuit(circuit, tmp_path / "c.yaml")
    assert circuits.load_circuit(tmp_path / "c.yaml") == circuit


@pytest.mark.parametrize("head", [(0.0, 1.0), ("0", "1"), (True, 0), (torch.tensor(0.5), 0), (np.True_, 1), (0,), 3])
def test_what_is_no_pair_of_integers_is_no_head(head):
    with pytest.raises(BadInput, match=r"head|layer"):
        Circuit({head: "uniform"})


def test_a_head_that_is_given_twice_is_refused():
    with pytest.raises(BadInput, match="L0H1 is given twice"):
        Circuit({"L0H1": "uniform", (0, 1): "identity"})


@pytest.mark.parametrize(
    "labels", [(0, 1), [0, 1], {0, 1}, range(2), np.array([0, 1]), torch.tensor([0, 1]), (np.int64(0), torch.tensor(1))]
)
def test_labels_of_a_condition_are_integers_of_any_library(model, labels, tmp_path):
    task, examples = Copying(), Copying().examples(60, 0)
    row = ("end", "source")
    circuit = Circuit({"L1H0": OneHot([row], "uniform", {row: Condition("kind", "source", labels)})})
    pattern, holds = uniform().repeat(60, 1, 1), torch.arange(60) % 3 < 2
    pattern[holds, END] = torch.nn.functional.one_hot(torch.tensor(SOURCE), LENGTH).float()
    expected = plain_losses(model, task, examples, {(1, 0): pattern})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)
    circuits.save_circuit(circuit, tmp_path / "c.yaml")
    assert circuits.load_circuit(tmp_path / "c.yaml") == circuit


@pytest.mark.parametrize("labels", [(0.0,), ("0",), (False,), (-1,), (), 1.5])
def test_labels_that_are_no_numbers_from_zero_are_refused(labels):
    with pytest.raises(BadInput, match="label"):
        Condition("kind", "source", labels)


@pytest.mark.parametrize("order", [("source", "end"), ("end", "source")])
def test_labels_belong_to_roles_by_name(order):
    kinds = {"source": torch.arange(6) % 2, "end": torch.zeros(6, dtype=torch.long)}
    places = {"source": torch.full((6,), SOURCE), "end": torch.full((6,), END)}
    roles = Roles.of(places, {"kind": {name: kinds[name] for name in order}})
    assert roles.group("kind", "source")[:, 0].tolist() == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("names", [("source",), ("source", "ends"), ("source", "end", "more")])
def test_a_group_with_other_roles_is_refused(names):
    places = {"source": torch.full((6,), SOURCE), "end": torch.full((6,), END)}
    with pytest.raises(BadInput, match="group 'kind' has the roles"):
        Roles.of(places, {"kind": dict.fromkeys(names, torch.zeros(6, dtype=torch.long))})


@pytest.mark.parametrize("given", [torch.full((6,), 3.0), torch.ones(6, dtype=torch.bool)])
def test_positions_and_labels_are_whole_numbers(given):
    with pytest.raises(BadInput, match="expected whole numbers"):
        Roles.of({"source": given})
    with pytest.raises(BadInput, match="expected whole numbers"):
        Roles.of({"source": torch.full((6,), 3)}, {"kind": {"source": given}})


WORDS = ["previous", "identity", "uniform", "zero", "elsewhere", "mechanism", "to", "at", "*", "position 3", "position"]


@pytest.mark.parametrize("name", [*WORDS, "", " source", "two\nlines"])
def test_names_that_mean_something_else_in_a_circuit_are_refused_where_roles_are_made(name):
    with pytest.raises(BadInput, match="called"):
        Roles.of({name: torch.zeros(2, dtype=torch.long)})
    labels = {"source": torch.zeros(2, dtype=torch.long)}
    with pytest.raises(BadInput, match="called"):
        Roles.of(labels, {name: labels})
    with pytest.raises(BadInput, match="called"):
        OneHot([(name, "source")])


def test_two_instances_at_one_position_cannot_have_two_targets(model):
    places = {"key": torch.tensor([[1, 4]] * 8), "asked": torch.tensor([[9, 9]] * 8)}
    kinds = {name: torch.tensor([[0, 1]] * 8) for name in places}
    tokens = torch.randint(3, VOCABULARY, (8, LENGTH), generator=torch.Generator().manual_seed(0))
    examples = Examples(tokens, tokens[:, 1], Roles.of(places, {"one": kinds}))
    task, row = Copying(("key", "asked"), output_roles=("asked",)), ("asked", "key")
    with pytest.raises(BadInput, match="two instances have 'asked' at one position"):
        evaluate(model, task, examples, [Circuit({"L1H0": {"asked": "key"}})])
    circuit = Circuit({"L1H0": OneHot([row], "uniform", {row: Condition("one", "key", 1)})})
    pattern = uniform()
    pattern[END] = torch.nn.functional.one_hot(torch.tensor(4), LENGTH).float()
    expected = plain_losses(model, task, examples, {(1, 0): pattern})
    assert torch.allclose(evaluate(model, task, examples, [circuit])[0], expected, atol=1e-5)


ENTRANCES = {
    "validate": lambda model, task: validate(model, task, CIRCUIT, n_examples=32, progress=print),
    "discover": lambda model, task: circuits.discover(model, task, n_examples=32, threshold=9.0),
    "evaluate": lambda model, task: evaluate(model, task, Copying().examples(4, 0), [CIRCUIT]),
    "path_patching": lambda model, task: circuits.path_patching(model, task, CIRCUIT, n_examples=4),
    "mlp_ablations": lambda model, task: circuits.mlp_ablations(model, task, n_examples=4),
    "self_consistency": lambda model, task: circuits.self_consistency(model, task, CIRCUIT, n_examples=32),
}
ON_MODELS = {
    **ENTRANCES,
    "run_ablated": lambda model, task: run_ablated(model, CIRCUIT, Copying().examples(4, 0)),
    "ablated": lambda model, task: circuits.ablated(model, CIRCUIT, Copying().examples(4, 0).roles),
    "viewer": lambda model, task: circuits.attention_viewer(model, Copying().examples(4, 0)),
    "role_attention": lambda model, task: circuits.role_attention(model, Copying().examples(4, 0)),
}


def train_mode():
    model = bridge("gpt2")
    model.train()
    return model


def with_hook():
    model = small_model()
    model.add_hook("blocks.0.hook_mlp_out", lambda value, hook: value * 0)
    return model


class Spliced(torch.nn.Module):
    def forward(self, x):
        return x.sign()


def spliced():
    model = small_model()
    model.blocks[1].hook_resid_pre = Spliced()
    return model


def compiled():
    model = small_model()
    model.compile(backend="eager")
    return model


MODELS = {
    "a transformers model": (lambda: bridge("gpt2").original_model, "GPT2LMHeadModel"),
    "a name": (lambda: "gpt2", "the text 'gpt2'"),
    "a class": (lambda: HookedTransformer, "the class HookedTransformer"),
    "train mode": (train_mode, "train mode"),
    "a hook": (with_hook, "a hook at blocks.0.hook_mlp_out"),
    "a spliced module": (spliced, "blocks.1.hook_resid_pre of the model is a Spliced"),
    "compiled": (compiled, "compiled"),
    "compiled from outside": (lambda: torch.compile(small_model(), backend="eager"), "compiled"),
}


@pytest.mark.parametrize("wrong", MODELS)
def test_models_that_cannot_be_ablated_are_refused_at_every_entrance(wrong):
    make, said = MODELS[wrong]
    model = make()
    for run in ON_MODELS.values():
        with pytest.raises(BadInput, match=said):
            run(model, Copying())


def test_what_was_learned_of_a_model_is_forgotten_when_it_changes():
    model, task, examples = small_model(), Copying(), Copying().examples(4, 0)
    before = evaluate(model, task, examples, [CIRCUIT])
    model.add_hook("blocks.0.hook_mlp_out", lambda value, hook: value * 0)
    with pytest.raises(BadInput, match="hook"):
        evaluate(model, task, examples, [CIRCUIT])
    model.reset_hooks()
    assert torch.equal(evaluate(model, task, examples, [CIRCUIT]), before)
    model.cfg.use_attn_scale = False  # the blocks still scale; what is known of them is measured again
    assert torch.equal(evaluate(model, task, examples, [CIRCUIT]), before)


def test_an_architecture_that_drops_edits_stays_refused_after_a_call_in_train_mode():
    model, task = bridge("opt"), Copying()
    model.train()
    with pytest.raises(BadInput, match="train mode"):
        validate(model, task, EVERY, n_examples=8)
    model.eval()
    with pytest.raises(BadInput, match="have no effect"):
        validate(model, task, EVERY, n_examples=8)


def test_hooks_that_somebody_swallows_are_an_error(model, examples):
    with (
        pytest.raises(RuntimeError, match="did nothing"),
        circuits.ablated(model, CIRCUIT, examples.roles),
    ):
        pass
    swallowing = small_model()
    attention = swallowing.blocks[1].attn
    attention.forward = copy.deepcopy(attention).forward
    with pytest.raises(BadInput, match="without its hooks"):
        evaluate(swallowing, Copying(), examples, [CIRCUIT])


def test_generation_with_a_cache_of_keys_is_one_line_inside_an_ablation(model):
    examples = Copying().examples(2, 0)
    options = {"max_new_tokens": 2, "verbose": False, "stop_at_eos": False}
    with (
        pytest.raises(BadInput, match="cache of keys"),
        circuits.ablated(model, CIRCUIT, examples.roles),
    ):
        model.generate(examples.inputs, **options)


class ReadsAfter(Copying):
    """Reads the output one position after ``end``, in a way that swallows NaN."""

    def __init__(self, how):
        super().__init__()
        self.how = how

    def losses(self, outputs, examples):
        after, token = outputs[:, END + 1], examples.inputs[:, END + 1, None]
        return {
            "accuracy": (after.argmax(dim=-1, keepdim=True) != token).float(),
            "top 5": 1 - (after.topk(5).indices == token).any(dim=-1, keepdim=True).float(),
            "rank": (after > after.gather(1, token)).float().mean(dim=-1, keepdim=True),
            "nan_to_num": torch.relu(1 - after.gather(1, token)).nan_to_num(),
            "all positions": (outputs[:, :-1].argmax(dim=-1) != examples.inputs[:, 1:]).float().mean(1, keepdim=True),
        }[self.how]


@pytest.mark.parametrize("how", ["accuracy", "top 5", "rank", "nan_to_num", "all positions"])
def test_a_loss_that_reads_elsewhere_and_swallows_nan_is_refused(model, how):
    task = ReadsAfter(how)
    with pytest.raises(BadInput, match="read more than the outputs at the roles end"):
        evaluate(model, task, task.examples(64, 0), [Circuit()])


class Loses(Copying):
    """Gives the losses that a function makes of the right ones."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def losses(self, outputs, examples):
        return self.change(super().losses(outputs, examples))


LOSSES = {
    "a batch mean": (lambda own: own.mean(dim=0, keepdim=True), r"of shape \[1, 1\]"),
    "a number": (lambda own: own.mean(), r"of shape \[\]"),
    "a row": (lambda own: own[:, 0], r"of shape \[\d+\]"),
    "transposed": (lambda own: own.repeat(1, 2).T, r"of shape \[2, \d+\]"),
    "two columns": (lambda own: own.repeat(1, 2), r"of shape \[\d+, 2\]"),
    "a list": (lambda own: own.tolist(), "got list"),
    "nothing": (lambda own: None, "got NoneType"),
    "NaN": (lambda own: own * torch.nan, "the task's losses are NaN"),
}


@pytest.mark.parametrize("wrong", LOSSES)
def test_losses_that_are_not_one_for_each_example_and_component_are_refused_at_every_entrance(model, wrong):
    change, said = LOSSES[wrong]
    for run in ENTRANCES.values():
        with pytest.raises(BadInput, match=said):
            run(model, Loses(change))


@pytest.mark.parametrize(
    "change", [lambda own: own > 3, lambda own: own.long(), lambda own: own.half(), lambda own: own.double()]
)
def test_losses_of_every_type_are_computed_at_least_in_single_precision(model, examples, change):
    task = Loses(change)
    expected = plain_losses(model, task, examples, {(0, 0): uniform()}).double()
    found = evaluate(model, task, examples, [Circuit({"L0H0": "uniform"})])[0]
    assert found.dtype in (torch.float32, torch.float64)
    assert torch.allclose(found.double(), expected, atol=1e-2 if expected.max() > 1 else 0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_precision_goes_through_every_entrance(dtype, examples):
    model, task = small_model().to(dtype), Copying()
    expected = plain_losses(model, task, examples, {(0, 0): uniform().to(dtype)})
    found = evaluate(model, task, examples, [Circuit({"L0H0": "uniform"})])[0]
    assert torch.allclose(found, expected, atol=0.1 if dtype == torch.bfloat16 else 0.01)
    for run in ON_MODELS.values():
        run(model, task)


def test_a_default_of_double_precision_changes_nothing(model, examples):
    expected = evaluate(model, Copying(), examples, [CIRCUIT])
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.allclose(evaluate(model, Copying(), examples, [CIRCUIT]), expected, atol=1e-5)
        for run in ENTRANCES.values():
            run(model, Copying())
    finally:
        torch.set_default_dtype(torch.float32)


class Gives(Copying):
    """Gives the examples that a function makes of the task, a number and a seed."""

    def __init__(self, give):
        super().__init__()
        self.give = give

    def examples(self, n, seed):
        return self.give(Copying(), n, seed)


TASKS = {
    "a data set that ends": (Gives(lambda task, n, seed: task.examples(min(n, 20), seed)), "20 examples where"),
    "no seed": (Gives(lambda task, n, seed: task.examples(n, 0)), "the same examples for every seed"),
    "chance": (
        Gives(lambda task, n, seed: task.examples(n, random.randrange(10**9))),
        "other examples for the same seed",
    ),
    "a tuple": (Gives(lambda task, n, seed: (task.examples(n, seed),)), "examples: got tuple"),
    "a class": (Copying, "the class Copying"),
    "a text for components": (Copying(loss_components="nll"), "loss_components"),
    "a text for roles": (Copying(output_roles="end"), "output_roles"),
    "an unknown role": (Copying(output_roles=("answer",)), "unknown role 'answer'"),
    "no task": (3, "has no roles, loss_components"),
}


@pytest.mark.parametrize("wrong", TASKS)
def test_what_is_no_task_is_refused(model, wrong):
    task, said = TASKS[wrong]
    for name, run in ENTRANCES.items():
        if name != "evaluate" or "examples" not in said:  # it is given examples
            with pytest.raises(BadInput, match=said):
                run(model, task)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"protocol": "Paper"}, "'Paper'; expected extended or paper"),
        ({"n_examples": 64.0}, "number of examples is 64.0"),
        ({"seed": -1}, "seed is -1"),
        ({"threshold": "0.1"}, "threshold is '0.1'"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"max_examples": -5}, "max_examples is -5"),
        ({"metadata": {"model": object()}}, "the metadata, model"),
        ({"circuit": {"L0H0": "uniform"}}, "circuit: got dict; expected Circuit"),
        ({"circuit": Copying().examples(2, 0)}, "circuit: got Examples; expected Circuit"),
    ],
)
def test_arguments_that_cannot_be_used_are_named_in_one_line(model, changed, said):
    with pytest.raises(BadInput, match=said) as raised:
        validate(**{"model": model, "problem": Copying(), "circuit": CIRCUIT, **changed})
    assert "\n" not in str(raised.value)


def test_numbers_of_any_library_are_taken_as_pythons(model):
    settings = {"n_examples": np.int64(32), "seed": torch.tensor(1), "threshold": np.float32(9.0)}
    metadata = {"seed": np.int64(3), "rate": torch.tensor(0.5), "heads": (np.int32(1), 2)}
    report = validate(model, Copying(), CIRCUIT, **settings, metadata=metadata)
    again = validate(model, Copying(), CIRCUIT, n_examples=32, seed=1, threshold=9.0)
    assert report.combined == again.combined
    assert report.metadata == {"seed": 3, "rate": 0.5, "heads": [1, 2]}


def test_another_process_finds_a_pickled_circuit_in_a_dict_and_takes_arrays_as_inputs():
    hash(CIRCUIT)  # hashes differ from process to process
    code = """
import pickle, sys, numpy as np
from circuits import BadInput, Circuit, Examples, Roles
same = Circuit({"L1H0": {"end": "source"}, "L0H0": "uniform"})
assert {same: "there"}[pickle.load(sys.stdin.buffer)] == "there"
roles = Roles.of({"end": np.array([1, 1])})
examples = Examples(np.array([[3, 4], [5, 6]]), np.array([3, 5]), roles)
assert examples.inputs.tolist() == [[3, 4], [5, 6]]
try:
    Examples([[3, 4], [5, 6]], examples.targets, roles)
except BadInput as error:
    assert "inputs of examples: got list" in str(error)
else:
    raise AssertionError
"""  # no annotations are checked there, as they are here
    other = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", code], input=pickle.dumps(CIRCUIT), env=other, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()


def test_padding_that_the_model_masks_by_itself_must_be_declared():
    class Tokenizer:
        padding_side, pad_token_id, bos_token_id = "left", 0, 1

    model, task = small_model(default_prepend_bos=False), Copying()
    examples = task.examples(6, 0)
    examples.inputs[5, :2] = 0
    expected = plain_losses(model, task, examples, {})
    assert torch.allclose(evaluate(model, task, examples, [Circuit()])[0], expected, atol=1e-5)
    model.tokenizer = Tokenizer()
    with pytest.raises(BadInput, match="example 5 begins with 2 tokens of padding"):
        evaluate(model, task, examples, [Circuit()])
    valid = torch.ones(6, LENGTH)
    valid[5, :2] = 0
    places = {name: examples.roles[name] for name in examples.roles}
    declared = Examples(examples.inputs, examples.targets, Roles.of(places, valid=valid))
    masked = plain_losses(model, task, examples, {})
    assert not torch.allclose(masked[5], expected[5], atol=1e-3)
    assert torch.allclose(evaluate(model, task, declared, [Circuit()])[0], masked, atol=1e-5)


def test_a_model_is_let_go_although_its_task_holds_it():
    model, task = small_model(), Copying()
    task.model = model
    evaluate(model, task, task.examples(4, 0), [CIRCUIT])
    gone = weakref.ref(model)
    del model, task
    gc.collect()
    assert gone() is None


def test_examples_of_a_small_data_set_that_repeat_are_told(model):
    def shuffled(task, n, seed):
        order = torch.randperm(20, generator=torch.Generator().manual_seed(seed)).repeat(n // 20 + 1)[:n]
        return task.examples(20, 0).take(order)

    with pytest.warns(UserWarning, match="20 different examples where 64 were asked for"):
        validate(model, Gives(shuffled), CIRCUIT, n_examples=64)


def test_every_method_of_a_circuit_takes_heads_as_integers_of_any_library():
    base, picked = Circuit({f"L0H{head}": "uniform" for head in range(4)}), torch.tensor([[0, 1], [0, 2]])
    assert [*base.without_heads(picked).heads] == [Head(0, 0), Head(0, 3)]
    assert base.with_head(tuple(picked[0]), circuits.Identity()).heads[Head(0, 1)] == circuits.Identity()
    assert len(base.with_head(tuple(picked[0]), circuits.Identity()).heads) == 4
    assert tuple(picked[0]) in base.heads
    assert base.layer(torch.tensor(0)) == base.layer(0)


def test_a_model_whose_forward_was_patched_is_checked_again():
    model, task, examples = small_model(), Copying(), Copying().examples(8, 0)
    evaluate(model, task, examples, [CIRCUIT])
    mlp = model.blocks[0].mlp
    before = mlp.forward
    mlp.forward = lambda x: before(x) * 0
    with pytest.raises(BadInput, match="do not give its outputs"):
        evaluate(model, task, examples, [CIRCUIT])


def test_losses_of_an_example_that_depend_on_the_others_are_refused(model, examples):
    for change in (lambda own: own.mean().expand(len(own), 1), lambda own: own - own.mean()):
        with pytest.raises(BadInput, match="depend on the other examples"):
            evaluate(model, Loses(change), examples, [CIRCUIT])

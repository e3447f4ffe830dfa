"""A model that cannot be ablated as it is now is refused at every entrance."""

import copy
import gc
import weakref

import pytest
import torch

import circuits
from circuits import BadInput, Circuit, Examples, Roles, evaluate, validate
from circuits.checks.experiment import STREAM, Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.given import stream_seed
from circuits.model.state import check_state, learned
from tests.architectures import LENGTH, ONLY_3, bridge
from tests.circuits.entrance.small import (
    CIRCUIT,
    END,
    ENTRANCES,
    ON_MODELS,
    SOURCE,
    Copying,
    plain_losses,
    small_model,
    uniform,
)
from tests.refusals import assert_refused

EVERY = Circuit({f"L{layer}H{head}": "identity" for layer in range(2) for head in range(4)})
MLP, PATTERN = "blocks.0.hook_mlp_out", "blocks.0.attn.hook_pattern"
MODELS = {  # what becomes of a model, and what is said of it
    "a transformers model": (lambda own: bridge("gpt2").original_model, "GPT2LMHeadModel"),
    "a name": (lambda own: "gpt2", "the text 'gpt2'"),
    "a class": (type, "the class HookedTransformer"),
    "train mode": (lambda own: bridge("gpt2").train(), "train mode"),
    "a hook": (lambda own: own.add_hook(MLP, torch.mul), f"a hook at {MLP}"),
    "a hook on a pattern": (lambda own: own.add_perma_hook(PATTERN, torch.mul), f"a hook at {PATTERN}"),
    "one layer twice": (lambda own: own.blocks.__setitem__(1, own.blocks[0]), "two layers of the model are one module"),
    "a spliced module": (
        lambda own: setattr(own.blocks[1], "hook_resid_pre", torch.nn.Softsign()),
        "blocks.1.hook_resid_pre of the model is a Softsign",
    ),
    "compiled": (lambda own: own.compile(backend="eager"), "compiled"),
    "compiled from outside": (lambda own: torch.compile(own, backend="eager"), "compiled"),
}


@pytest.mark.parametrize("wrong", MODELS)
def test_models_that_cannot_be_ablated_are_refused_at_every_entrance(wrong):
    change, said = MODELS[wrong]
    model = small_model()
    changed = change(model)
    for run in ON_MODELS.values():
        assert_refused(said, run, model if changed is None else changed, Copying())


def test_a_model_that_is_being_ablated_is_refused(model, examples):
    with circuits.ablated(model, CIRCUIT, examples.roles) as ablated:
        ablated(examples.inputs)
        assert_refused("leave the with block", evaluate, ablated, Copying(), examples, [CIRCUIT])
    assert torch.isfinite(evaluate(model, Copying(), examples, [CIRCUIT])).all()


def test_what_was_learned_of_a_model_is_forgotten_when_it_changes():
    model, task, examples = small_model(), Copying(), Copying().examples(4, 0)
    before = evaluate(model, task, examples, [CIRCUIT])
    model.add_hook("blocks.0.hook_mlp_out", lambda value, hook: value * 0)
    assert_refused("hook", evaluate, model, task, examples, [CIRCUIT])
    model.reset_hooks()
    assert torch.equal(evaluate(model, task, examples, [CIRCUIT]), before)
    model.cfg.use_attn_scale = False  # the blocks still scale; what is known of them is measured again
    assert torch.equal(evaluate(model, task, examples, [CIRCUIT]), before)


@pytest.mark.parametrize("change", [{"eps": 1.0}, {"use_attn_scale": False}], ids=str)
def test_the_configs_of_a_bridge_belong_to_what_it_is(change):
    model = bridge("gpt2")
    check_state(model)
    learned(model)["there"] = True
    check_state(model)
    assert "there" in learned(model)
    for config in (model.cfg, model.original_model.config):
        for name, value in change.items():
            setattr(config, name, value)
    check_state(model)
    assert "there" not in learned(model)


def test_an_architecture_that_drops_edits_stays_refused_after_a_call_in_train_mode():
    model, task = bridge("opt"), Copying()
    model.train()
    assert_refused("train mode", validate, model, task, EVERY, n_examples=8)
    model.eval()
    assert_refused("have no effect", validate, model, task, EVERY, n_examples=8)


def test_a_model_whose_forward_was_patched_is_checked_again():
    model, task, examples = small_model(), Copying(), Copying().examples(8, 0)
    evaluate(model, task, examples, [CIRCUIT])
    mlp = model.blocks[0].mlp
    before = mlp.forward
    mlp.forward = lambda x: before(x) * 0
    assert_refused("do not give its outputs", evaluate, model, task, examples, [CIRCUIT])


def test_hooks_that_somebody_swallows_are_an_error(model, examples):
    with pytest.raises(BadInput, match="did nothing"), circuits.ablated(model, CIRCUIT, examples.roles):
        pass
    swallowing = small_model()
    attention = swallowing.blocks[1].attn
    attention.forward = copy.deepcopy(attention).forward
    assert_refused("without its hooks", evaluate, swallowing, Copying(), examples, [CIRCUIT])


@ONLY_3
def test_generation_with_a_cache_of_keys_is_one_line_inside_an_ablation(model):
    examples = Copying().examples(2, 0)
    options = {"max_new_tokens": 2, "verbose": False, "stop_at_eos": False}
    with pytest.raises(BadInput, match="cache of keys"), circuits.ablated(model, CIRCUIT, examples.roles):
        model.generate(examples.inputs, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_precision_goes_through_every_entrance(dtype, examples):
    model, task = small_model().to(dtype), Copying()
    expected = plain_losses(model, task, examples, {(0, 0): uniform().to(dtype)})
    found = evaluate(model, task, examples, [Circuit({"L0H0": "uniform"})])[0]
    assert torch.allclose(found, expected, atol=0.1 if dtype == torch.bfloat16 else 0.01)
    for run in ON_MODELS.values() if dtype != torch.float16 else ():
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


@ONLY_3
def test_padding_that_the_model_masks_by_itself_must_be_declared():
    class Tokenizer:
        padding_side, pad_token_id, bos_token_id = "left", 0, 1

    model, task = small_model(default_prepend_bos=False), Copying()
    examples = task.examples(6, 0)
    examples.inputs[5, :2] = 0
    expected = plain_losses(model, task, examples, {})
    assert torch.allclose(evaluate(model, task, examples, [Circuit()])[0], expected, atol=1e-5)
    model.tokenizer = Tokenizer()
    assert_refused("example 5 begins with 2 tokens of padding", evaluate, model, task, examples, [Circuit()])
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


class Padded(Copying):
    """Up to three tokens of padding on the left, declared."""

    def examples(self, n, seed):
        given = super().examples(n, seed)
        first = torch.randint(0, 3, (n, 1), generator=torch.Generator().manual_seed(seed + 77))
        valid = torch.arange(LENGTH) >= first
        places = {name: given.roles[name] for name in given.roles.names}
        return Examples(
            torch.where(valid, given.inputs, 0), given.targets, Roles.of(places, valid=valid, layout=first[:, 0])
        )


def test_attention_that_is_measured_by_itself_follows_declared_padding(model):
    circuit = Circuit({"L0H1": "uniform", "L1H0": {"end": "source"}})
    found = circuits.self_consistency(model, Padded(), circuit, n_examples=256)
    examples = Padded().examples(256, stream_seed(0, STREAM))
    valid, seen = examples.roles.valid, []
    pattern = valid[:, None] & torch.ones(LENGTH, LENGTH).tril().bool()
    pattern = pattern / pattern.sum(dim=2, keepdim=True).clamp(min=1)

    def replace(module, inputs, own):
        own = own.clone()
        own[:, 1] = torch.where(valid[:, :, None], pattern, own[:, 1])
        return own

    hooks = [
        model.blocks[0].attn.hook_pattern.register_forward_hook(replace),
        model.blocks[1].attn.hook_pattern.register_forward_hook(lambda module, inputs, own: seen.append(own)),
    ]
    with torch.no_grad():
        model(examples.inputs, attention_mask=valid.long())
    for hook in hooks:
        hook.remove()
    assert found.heads[0].along[0].attention.mean == pytest.approx(seen[0][:, 0, END, SOURCE].mean().item(), abs=1e-4)


def test_heads_cannot_be_resampled_from_examples_of_other_lengths(model):
    idle = Circuit({**CIRCUIT.heads, "L0H1": "idle"})
    kinds, said = [], []
    for task in (Copying(), Padded()):
        found = faithfulness(Experiment(model, task, idle, n_examples=128))
        kinds.append([*found.ablations])
        said.append(found.verdicts[1].sentence)
    assert kinds == [["mean", "resample"], ["mean"]]
    assert said[1] == "Not tested: the examples have no counterfactual inputs: Examples.counterfactual."

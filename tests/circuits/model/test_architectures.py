from dataclasses import replace
from functools import cache

import pytest
import torch

from circuits import Circuit, Examples, Head, OneHot, Roles, attention_viewer, evaluate, role_attention, run_ablated
from circuits.mechanisms import Identity, Previous, Uniform
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.model.layers import attention_patterns, layers
from tests.architectures import LENGTH, TRANSFORMER_LENS_4, VOCABULARY, bridge, native_bridge, shaken
from tests.circuits.entrance.small import Copying, small_model
from tests.handmade import losses_by_hooks
from tests.refusals import assert_refused

SUPPORTED = ("gpt2", "llama", "qwen2", "qwen3", "gemma2", "gemma3", "neox", "mistral", "olmo2", "mixtral", "falcon")
RUNNING = (*SUPPORTED, *(["native"] if TRANSFORMER_LENS_4 else []))  # TransformerLens 3.9 drops edits of native
ALIBI = ("bloom", "mpt", "falcon_alibi", "falcon_rw")  # biases of attention for each head
CIRCUITS = [
    Circuit(),
    Circuit({Head(0, 1): Uniform()}),
    Circuit({Head(0, h): Previous() for h in range(4)} | {Head(1, h): OneHot({"b": "a"}, "uniform") for h in range(4)}),
    Circuit({Head(0, h): Uniform() for h in range(4)} | {Head(1, h): Identity() for h in range(4)}),
    Circuit({Head(1, 2): Identity()}),
]


class Close(Copying):
    """Asked at ``b``, three positions after ``a``."""

    def examples(self, n, seed):
        roles = Roles.of({"a": torch.full((n,), 6), "b": torch.full((n,), 9)})
        return replace(super().examples(n, seed), roles=roles)


PROBLEM = Close(("a", "b"), output_roles=("b",))


@cache
def model_of(name):
    return native_bridge() if name == "native" else bridge(name)


def with_hooks(model, examples):
    return losses_by_hooks(model, PROBLEM, examples, CIRCUITS)


@pytest.mark.parametrize("name", RUNNING)
def test_evaluation_of_every_architecture_equals_plain_hooks(name):
    model, examples = model_of(name), PROBLEM.examples(5, seed=0)
    found, expected = evaluate(model, PROBLEM, examples, CIRCUITS), with_hooks(model, examples)
    assert (found - expected).abs().max() <= 1e-6
    assert ((expected[1:] - expected[0]).abs().amax(dim=(1, 2)) > 1e-3).all()


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "neox"])
def test_outputs_are_read_without_running_a_block(name):
    model, ran = model_of(name), []
    opened = layers(model, PROBLEM.examples(2, seed=0))
    hooks = [block.attn.register_forward_hook(lambda *given: ran.append(given)) for block in model.blocks]
    rows = opened.read(torch.zeros(3, model.cfg.d_model))
    for hook in hooks:
        hook.remove()
    assert rows.shape[0] == 3
    assert not ran


@pytest.mark.parametrize("name", ALIBI)
@pytest.mark.parametrize("n", [1, 4])
def test_biases_of_heads_are_not_taken_for_those_of_examples(name, n):
    model, examples = bridge(name), PROBLEM.examples(n, seed=0)  # a model is checked on the first examples of a length
    found, expected = evaluate(model, PROBLEM, examples, CIRCUITS), with_hooks(model, examples)
    assert (found - expected).abs().max() <= 1e-6


@pytest.mark.parametrize("name", ["opt", "gptj", *([] if TRANSFORMER_LENS_4 else ["native"])])
def test_a_bridge_that_drops_edits_is_refused_in_one_line_with_its_architecture(name):
    model, examples = model_of(name), PROBLEM.examples(2, seed=0)
    for work in (
        lambda: evaluate(model, PROBLEM, examples, [Circuit()]),
        lambda: run_ablated(model, CIRCUITS[1], examples),
        lambda: role_attention(model, examples),
    ):
        assert_refused(r"^(OPTForCausalLM|GPTJForCausalLM|TransformerLensNative): .*layer 0", work)


@pytest.mark.parametrize("what", ["read", "write"])
def test_a_layer_whose_heads_read_or_write_nothing_is_not_taken_for_one_that_drops_edits(what):
    model, examples = bridge("gpt2"), PROBLEM.examples(3, seed=0)
    attention = model.blocks[0].attn.original_component
    with torch.no_grad():
        for own in (attention.c_attn if what == "read" else attention.c_proj).parameters():
            own.zero_()
        if what == "read":
            attention.c_proj.bias.zero_()
    assert (evaluate(model, PROBLEM, examples, CIRCUITS) - with_hooks(model, examples)).abs().max() <= 1e-6


def test_a_layer_that_writes_the_same_wherever_it_attends_is_not_said_to_drop_edits():
    model = bridge("gpt2")
    with torch.no_grad():
        model.blocks[0].attn.original_component.c_proj.weight.zero_()
    said = "layer 0 have no effect: it writes the same, wherever its heads attend"
    assert_refused(said, evaluate, model, PROBLEM, PROBLEM.examples(2, seed=0), [Circuit()])


@pytest.mark.parametrize("cap", [-1.0, *([] if TRANSFORMER_LENS_4 else [0.5])])
@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
def test_outputs_of_a_large_vocabulary_are_those_of_the_model(norm, cap):
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 8, "d_head": 4, "n_ctx": LENGTH, "d_vocab": 5000}
    more = {} if cap < 0 else {"output_logits_soft_cap": cap}
    cfg = HookedTransformerConfig(**sizes, **more, attn_only=True, normalization_type=norm, seed=0, device="cpu")
    model, examples = shaken(HookedTransformer(cfg)).eval(), PROBLEM.examples(3, seed=0)
    opened = layers(model, examples)
    with torch.no_grad():
        found = opened.read(opened.block(0, opened.embed()).flatten(0, 1)).unflatten(0, (3, LENGTH))
        assert (found - model(examples.inputs)).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["gpt2", "llama", "hooked"])
def test_examples_that_a_model_cannot_read_are_refused_in_one_line(name):
    model = small_model(attn_only=True) if name == "hooked" else model_of(name)
    at = Roles.of({"a": torch.zeros(2, dtype=torch.long), "b": torch.full((2,), 2)})
    for inputs, said in (
        (torch.zeros(2, 33, dtype=torch.long), "the inputs have 33 positions; the model reads at most 32"),
        (torch.full((2, 5), VOCABULARY), "token 31 is none of the model's; expected 0 to 30"),
        (torch.full((2, 5), -1), "token -1 is none of the model's; expected 0 to 30"),
        (torch.rand(2, 5, 32), r"reads tokens \[batch, pos\]; got \[2, 5, 32\] of torch.float32"),
        (torch.zeros(2, 5, dtype=torch.long, device="meta"), "the inputs are on meta, the model on cpu"),
    ):
        examples = Examples(inputs, torch.zeros(2, dtype=torch.long), at)
        for work in (
            lambda examples=examples: evaluate(model, PROBLEM, examples, [Circuit()]),
            lambda examples=examples: run_ablated(model, CIRCUITS[1], examples),
            lambda examples=examples: role_attention(model, examples),
        ):
            assert_refused(said, work)


def test_a_bridge_whose_layers_cannot_be_run_one_by_one_is_refused():
    said, examples = r"^GPTBigCodeForCausalLM: the layers cannot be run one by one", PROBLEM.examples(2, seed=0)
    assert_refused(said, evaluate, model_of("gptbigcode"), PROBLEM, examples, [Circuit()])


def test_patterns_of_a_bridge_are_those_of_its_cache_and_can_be_viewed():
    model, examples = model_of("llama"), PROBLEM.examples(3, seed=0)
    _, cache = model.run_with_cache(examples.inputs)
    for layer, pattern in attention_patterns(model, examples):
        assert torch.allclose(pattern, cache[f"blocks.{layer}.attn.hook_pattern"], atol=1e-6)
    assert "L1H3" in repr(attention_viewer(model, examples))


def test_a_model_whose_layers_do_not_give_its_outputs_is_refused():
    model = small_model()
    forward = model.forward

    def shifted(*given, **options):
        return forward(*given, **options) + (0 if {"start_at_layer", "stop_at_layer"} & {*options} else 1)

    model.forward = shifted
    assert_refused("do not give its outputs", evaluate, model, PROBLEM, PROBLEM.examples(2, seed=0), [Circuit()])

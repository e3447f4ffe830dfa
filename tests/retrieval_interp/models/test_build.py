import copy
import math
import re
from functools import partial

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformer_lens import ActivationCache

from circuits import BadInput
from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp import PRESETS, RetrievalTask, VectorTransformer, preset
from retrieval_interp.models.build import build
from retrieval_interp.models.presets import Architecture
from retrieval_interp.training.training_pass import training_pass

TASK = RetrievalTask(n_steps=2)


@pytest.fixture(scope="module")
def small():
    return VectorTransformer(Architecture(n_layers=2, n_heads=2, d_model=32, d_head=16).config(TASK), seed=1)


def test_its_state_loads_strictly_into_a_stock_hooked_transformer_and_computes_the_same(small):
    stock = HookedTransformer(small.cfg)
    stock.load_state_dict(small.state_dict(), strict=True)
    x = TASK.examples(3, 0).inputs
    residual = x @ stock.W_E
    assert torch.allclose(stock(residual, start_at_layer=0), small(x), atol=1e-6)


def test_run_with_cache_hooks_and_start_at_layer_just_work(small):
    x = TASK.examples(3, 0).inputs
    outputs, cache = small.run_with_cache(x)
    assert isinstance(cache, ActivationCache)
    assert outputs.shape == (3, TASK.n_positions, TASK.d_output)
    assert cache["pattern", 1].shape == (3, 2, TASK.n_positions, TASK.n_positions)
    assert torch.allclose(small(cache["resid_pre", 1], start_at_layer=1), outputs, atol=1e-6)
    zeroed = small.run_with_hooks(x, fwd_hooks=[("blocks.0.attn.hook_z", lambda z, hook: z * 0)])
    assert not torch.allclose(zeroed, outputs)
    assert torch.equal(copy.deepcopy(small)(x), outputs)


@pytest.mark.parametrize("preset_name", ["tiny", "transformer_d", "equations"])
@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("normalization_type", ["LN", "LNPre", None])
def test_the_pass_that_training_takes_has_the_answers_and_gradients_of_the_transformer(
    preset_name, n_heads, normalization_type
):
    task = preset(preset_name).task
    shape = Architecture(n_layers=2, n_heads=n_heads, d_model=12, d_head=4, mlp=preset(preset_name).architecture.mlp)
    cfg = shape.config(task)
    cfg.normalization_type, cfg.dtype = normalization_type, torch.float64
    model = build(task, cfg, seed=1)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in model.parameters():  # none is zero, biases among them
            weights.add_(torch.randn(weights.shape, generator=generator))
    inputs = task.examples(3, 0).inputs
    trained = [weights for weights in model.parameters() if weights.requires_grad]
    both = []
    for run in (model, partial(training_pass, model)):
        with sdpa_kernel(SDPBackend.MATH):  # the fused attention keeps its normaliser in single precision: 1e-7
            answers = run(inputs)
            towards = torch.randn(answers.shape, generator=torch.Generator().manual_seed(2)).double()
            both.append((answers, torch.autograd.grad((answers * towards).sum(), trained)))
    (answers, gradients), (fast, fast_gradients) = both
    torch.testing.assert_close(fast, answers)
    for one, other in zip(fast_gradients, gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_attention_is_causal(small):
    x = TASK.examples(1, 0).inputs
    changed = x.clone()
    changed[:, 10:] += 1.0
    assert torch.allclose(small(x)[:, :10], small(changed)[:, :10], atol=1e-6)


def test_weights_follow_the_seed_and_global_generators_are_left_alone(small):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    again = VectorTransformer(small.cfg, seed=1)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(again.W_Q, small.W_Q)
    assert not torch.equal(VectorTransformer(small.cfg, seed=2).W_Q, small.W_Q)


@pytest.mark.parametrize(("initializer_range", "deviation"), [(0.02, 0.02), (None, 0.8 / math.sqrt(128))])
def test_initial_weights_have_gpt2s_spread_or_transformer_lenss(initializer_range, deviation):
    model = VectorTransformer(PRESETS["transformer_a"].changed(initializer_range=initializer_range).config)
    assert model.W_Q.std().item() == pytest.approx(deviation, rel=0.01)
    assert model.W_out.std().item() == pytest.approx(deviation / math.sqrt(24), rel=0.01)
    assert model.b_in.abs().max() == 0
    assert model.ln_final.w.min() == 1
    assert model.W_pos.abs().max() == 0
    assert not model.pos_embed.W_pos.requires_grad


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.zeros(2, 5), r"reads \[batch, pos, 8\]; got \[2, 5\]"),
        (torch.zeros(2, 5, 7), r"got \[2, 5, 7\]"),
        (torch.zeros(2, 21, 8), "at most 20 positions; got 21"),
        (torch.zeros(2, 5, 8, dtype=torch.long), "floating-point"),
        ("a text", "got str"),
    ],
)
def test_wrong_inputs_are_refused_with_what_was_expected(small, given, message):
    with pytest.raises(BadInput, match=message):
        small(given)


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_builds_and_has_the_papers_shape(name):
    chosen = PRESETS[name]
    cfg = chosen.config
    assert cfg.d_vocab == (chosen.task.d_input if chosen.task.tokenizer else 8)
    expected = {"transformer_a": (12, 1, 128, 3), "transformer_d": (24, 1, 512, 4), "figure4_ic_8": (8, 8, 128, 5)}
    if name in expected:
        assert (cfg.n_layers, cfg.n_heads, cfg.d_model, chosen.task.n_steps) == expected[name]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Z", "unknown preset 'Z'; `retrieval-interp models presets` lists all "),
        (
            "inductoin",
            "unknown preset 'inductoin'; did you mean induction or induction_tokens? "
            "`retrieval-interp models presets` lists all ",
        ),
    ],
)
def test_an_unknown_preset_is_refused_with_those_of_nearly_that_name(name, said):
    with pytest.raises(BadInput, match=re.escape(said)):
        preset(name)

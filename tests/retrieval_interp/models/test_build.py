import copy
import math

import numpy as np
import pytest
import torch
from transformer_lens import ActivationCache

from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp import PRESETS, RetrievalTask, VectorTransformer, preset
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import CONFIG, read_config, task_from
from retrieval_interp.models.presets import FAMILIES, Architecture, Recipe
from tests.refusals import assert_refused

TASK = RetrievalTask(n_steps=2)


@pytest.fixture(scope="module")
def small():
    return VectorTransformer(Architecture(n_layers=2, n_heads=2, d_model=32, d_head=16).config(TASK), seed=1)


def test_its_state_loads_strictly_into_a_stock_hooked_transformer_and_computes_the_same(small):
    stock = HookedTransformer(small.cfg)
    stock.load_state_dict(small.state_dict(), strict=True)
    x = TASK.examples(3, 0).inputs
    assert torch.allclose(stock(x @ stock.W_E, start_at_layer=0), small(x), atol=1e-6)


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
    model = VectorTransformer(preset("paper_abc", initializer_range=initializer_range).config)
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
    assert_refused(message, small, given)


def test_presets_have_the_papers_shape_and_families_one_for_each_depth():
    for name, expected in {
        "paper_abc": (12, 1, 128, 3),
        "paper_d": (24, 1, 512, 4),
        "figure4_ic_8": (8, 8, 128, 5),
    }.items():
        chosen = preset(name)
        assert (chosen.config.n_layers, chosen.config.n_heads, chosen.config.d_model) == expected[:3]
        assert chosen.task.n_steps == expected[3]
    for name, (most, _) in FAMILIES.items():
        depths = [preset(f"{name}_{n}").architecture.n_layers for n in range(1, most + 1)]
        assert depths == [*range(1, most + 1)]
        for n in (0, most + 1, "03", "N"):
            assert_refused("unknown preset", preset, f"{name}_{n}")


@pytest.mark.parametrize("name", sorted(path.parent.name for path in data_folder().glob(f"*/{CONFIG}")))
def test_a_name_is_that_of_one_model_whether_it_is_loaded_or_trained(name):
    config = read_config(data_folder() / name)
    if name in PRESETS:
        chosen = preset(name)
        assert (config["made"]["preset"], Recipe(**config["made"]["recipe"])) == (name, chosen.recipe)
        assert task_from(config, data_folder()) == chosen.task
        assert config["architecture"]["n_layers"] == chosen.architecture.n_layers
    else:
        assert_refused(name, preset, name)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("Z", {}, "unknown preset 'Z'; `retrieval-interp models presets` lists all"),
        ("inductoin", {}, "unknown preset 'inductoin'; did you mean induction or induction_tokens?"),
        ("transformer_b", {}, "transformer_b is a trained model, .* is paper_abc"),
        ("tiny", {"frob": 1}, "no field 'frob'; expected one of steps, "),
        ("tiny", {"name": 1}, "no field 'name'; expected one of steps, "),
        ("tiny", {"n_layers": 0}, "n_layers is 0: "),
        ("tiny", {"n_chains": "two"}, "n_chains is 'two'"),
        ("tiny", {"steps": 3, "warmup": 4}, "warmup is 4; expected at most the number of steps, 3"),
    ],
)
def test_an_unknown_preset_or_a_field_that_does_not_fit_is_refused(name, changes, said):
    assert_refused(said, preset, name, **changes)


def test_a_preset_with_changed_fields_takes_numbers_of_any_library():
    changed = preset("tiny", n_layers=np.int64(1), steps=3, n_chains=3)
    assert (changed.architecture.n_layers, changed.recipe.steps, changed.task.n_chains) == (1, 3, 3)
    assert changed.recipe.warmup == 100  # the default may be more than the steps of a trial

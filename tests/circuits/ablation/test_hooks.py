import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import BadInput, Circuit, Head, ablated, run_ablated
from circuits.mechanisms import Identity, Previous, Uniform


def test_the_empty_circuit_changes_nothing(random_model, chains):
    examples = chains.examples(4, seed=0)
    assert torch.equal(run_ablated(random_model, Circuit(), examples), random_model(examples.inputs))


@settings(max_examples=20)
@given(st.integers(0, 2), st.integers(0, 1), st.sampled_from([Uniform(), Identity(), Previous()]))
def test_an_override_of_any_single_head_changes_the_output_at_the_queries(random_model, chains, layer, head, mechanism):
    examples = chains.examples(4, seed=0)
    changed = run_ablated(random_model, Circuit({Head(layer, head): mechanism}), examples)
    assert not torch.allclose(changed[:, -2:], random_model(examples.inputs)[:, -2:], atol=1e-6)


def test_the_pattern_seen_by_the_rest_of_the_model_is_the_one_put_in(random_model, chains):
    examples = chains.examples(4, seed=0)
    with ablated(random_model, Circuit({Head(1, 1): Previous()}), examples.roles):
        _, cache = random_model.run_with_cache(examples.inputs)
    expected = Previous().pattern(examples.roles, chains.n_positions)[0]
    assert (cache["pattern", 1][:, 1] == expected).all()
    assert not torch.equal(cache["pattern", 1][:, 0], expected.expand(4, -1, -1))


def test_no_effect_is_left_on_the_model_even_after_an_error(random_model, chains):
    examples = chains.examples(4, seed=0)
    before = random_model(examples.inputs)
    with pytest.raises(ZeroDivisionError), ablated(random_model, Circuit({Head(0, 0): Uniform()}), examples.roles):
        raise ZeroDivisionError
    assert torch.equal(random_model(examples.inputs), before)
    assert not random_model.blocks[0].attn.hook_pattern.fwd_hooks


@pytest.mark.parametrize(("ablated_layer", "run"), [(0, {"start_at_layer": 2}), (2, {"stop_at_layer": 1})])
def test_an_ablation_of_layers_that_are_not_run_is_an_error(random_model, chains, ablated_layer, run):
    inputs = chains.examples(4, seed=0).inputs
    given = random_model(inputs, stop_at_layer=2) if "start_at_layer" in run else inputs
    with (
        pytest.raises(BadInput, match=rf"layers \[{ablated_layer}\] did nothing"),
        ablated(random_model, Circuit({Head(ablated_layer, 0): Uniform()}), chains.examples(4, seed=0).roles),
    ):
        random_model(given, **run)


def test_the_roles_of_another_batch_are_refused(random_model, chains):
    with (
        pytest.raises(BadInput, match="roles belong to 1 examples; the model was run on 4"),
        ablated(random_model, Circuit({Head(0, 0): Uniform()}), chains.examples(1, seed=0).roles),
    ):
        random_model(chains.examples(4, seed=0).inputs)

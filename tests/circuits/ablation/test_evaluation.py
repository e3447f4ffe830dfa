import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from circuits import Circuit, Head, OneHot, ablation, evaluate
from circuits.ablation import each_loss
from circuits.mechanisms import Identity, Previous, Uniform
from circuits.model import transformer
from tests.architectures import ONLY_3
from tests.handmade import losses_by_hooks, random_transformer
from tests.refusals import assert_refused


def test_a_circuit_that_does_not_fit_is_refused_before_anything_runs(random_model, chains):
    examples = chains.examples(4, seed=0)
    assert_refused("L3H0 does not exist", evaluate, random_model, chains, examples, [Circuit({Head(3, 0): Uniform()})])


heads = st.builds(Head, st.integers(0, 2), st.integers(0, 1))
hypotheses = st.sampled_from(
    [
        Uniform(),
        Identity(),
        Previous(),
        OneHot({"query": "pair1.second", "pair1.second": "pair2.second"}),
        OneHot({"query": "pair2.first"}, elsewhere="identity"),
        OneHot({"query": "pair2.first", "pair1.first": "uniform"}, elsewhere="uniform"),
    ]
)


every_head = st.fixed_dictionaries({Head(layer, head): hypotheses for layer in range(3) for head in range(2)})


@settings(max_examples=15)
@given(st.lists(st.one_of(st.dictionaries(heads, hypotheses), every_head), min_size=1, max_size=6))
def test_evaluating_many_circuits_at_once_equals_running_them_one_by_one(random_model, chains, maps):
    circuits, examples = [Circuit(heads) for heads in maps], chains.examples(5, seed=1)
    together = evaluate(random_model, chains, examples, circuits)
    assert torch.allclose(together, losses_by_hooks(random_model, chains, examples, circuits), atol=1e-5)


@settings(max_examples=8)
@given(
    circuits=st.lists(st.one_of(st.dictionaries(heads, hypotheses), every_head), min_size=1, max_size=6),
    sequences=st.integers(1, 5),
    entries=st.integers(1, 4),
)
def test_losses_do_not_depend_on_how_much_runs_or_is_kept_at_once(random_model, chains, circuits, sequences, entries):
    maps, examples = [Circuit(heads) for heads in circuits], chains.examples(3, seed=1)
    at_once = evaluate(random_model, chains, examples, maps)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(transformer, "POSITIONS_AT_ONCE", sequences * chains.n_positions)
        patched.setattr(transformer, "ENTRIES_AT_ONCE", entries * 2 * chains.n_positions**2)
        ran = [part for _, part, _ in each_loss(random_model, chains, examples, maps)]
        assert {part.stop - part.start <= min(sequences, entries) for part in ran} == {True}
        assert torch.allclose(evaluate(random_model, chains, examples, maps), at_once, atol=1e-5)


@settings(max_examples=15)
@given(st.lists(st.one_of(st.dictionaries(heads, hypotheses), every_head), min_size=2, max_size=6))
def test_a_circuit_that_begins_as_another_goes_on_from_there_with_the_same_losses(random_model, chains, maps):
    examples, begun = chains.examples(5, seed=1), {}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ablation, "PARTS", 3)
        for circuit in map(Circuit, maps):
            ((_, _, losses),) = each_loss(random_model, chains, examples, [circuit], begun=begun)
            assert torch.equal(losses, evaluate(random_model, chains, examples, [circuit])[0])


def test_layers_in_which_a_circuit_agrees_with_one_before_do_not_run_again(random_model, chains, monkeypatch):
    ran, after, begun = [], ablation._Tree._after, {}

    def counted(tree, layer, *given):
        ran.append(layer)
        return after(tree, layer, *given)

    monkeypatch.setattr(ablation, "PARTS", 3)
    monkeypatch.setattr(ablation._Tree, "_after", counted)
    whole = Circuit({Head(layer, 0): Uniform() for layer in range(3)})
    for circuit in (whole, whole.with_head(Head(2, 0), Identity()), whole.with_head(Head(1, 0), Identity()), whole):
        [*each_loss(random_model, chains, chains.examples(5, seed=1), [circuit], begun=begun)]
    assert ran == [0, 1, 2, 2, 1, 2, 2]


def test_instance_losses_that_do_not_average_to_the_losses_are_refused(random_model, chains):
    class Tenfold(type(chains)):
        def losses(self, outputs, examples):
            return 10 * self.instance_losses(outputs, examples).mean(dim=1)

    task = Tenfold(chains.n_steps, chains.n_chains)
    assert_refused("do not average to its losses", evaluate, random_model, task, task.examples(9, 1), [Circuit()])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"attn_only": True},
        {"normalization_type": None},
        {"act_fn": "gelu"},
        {"act_fn": "gelu_new"},
        {"act_fn": "gelu_fast"},
        pytest.param({"gated_mlp": True}, marks=ONLY_3),
    ],
)
def test_models_with_every_kind_of_mlp_and_norm_are_evaluated_as_the_loop_does(chains, change):
    model = random_transformer(chains, **change)
    whole = Circuit({Head(layer, head): Uniform() for layer in range(3) for head in range(2)})
    circuits = [whole, whole.with_head(Head(1, 0), OneHot({"query": "pair1.first"})), Circuit({Head(1, 1): Identity()})]
    examples = chains.examples(4, seed=0)
    alone = losses_by_hooks(model, chains, examples, circuits)
    assert torch.allclose(evaluate(model, chains, examples, circuits), alone, atol=1e-5)


def test_no_circuits_have_no_losses(random_model, chains):
    assert evaluate(random_model, chains, chains.examples(4, seed=0), []).shape == (0, 4, 2)


def test_outputs_that_overflow_are_refused(chains):
    model = random_transformer(chains, n_layers=1)
    with torch.no_grad():
        model.unembed.W_U.fill_(3e38)
    assert_refused("outputs are NaN or infinite", evaluate, model, chains, chains.examples(4, seed=0), [Circuit()])


def test_a_model_that_adds_positions_in_every_layer_is_refused(random_model, chains, monkeypatch):
    monkeypatch.setattr(random_model.cfg, "positional_embedding_type", "shortformer")
    said, examples = "shortformer positional embeddings are not supported", chains.examples(4, seed=0)
    assert_refused(said, evaluate, random_model, chains, examples, [Circuit()])

"""Interchange training: what it asks for is worked out by hand, and compiled models answer it without any training."""

import math

import pytest
import torch
from torch.nn.functional import one_hot

from circuits import BadInput, Circuit, Head, OneHot
from circuits.circuit import AttentionPath
from circuits.ground_truth.compile import compile_circuit
from circuits.ground_truth.interchange_training import (
    ATTENTION,
    OTHERS,
    OUTPUT,
    PLAIN,
    _four_runs,
    _of_highest,
    _Plan,
    train_to_carry,
)
from circuits.ground_truth.noise import add_noise
from circuits.interchange.predicted import answers_if_exchanged
from circuits.interchange.variables import couples
from retrieval_interp.ground_truth.chains import ChainProblem

PROBLEM = ChainProblem(2, n_chains=4)
WALK = Circuit(
    {
        Head(0, 0): OneHot({"pair1.second": "pair1.first", "pair2.second": "pair2.first"}),
        Head(1, 1): OneHot({"query": "pair1.second"}),
        Head(2, 0): OneHot({"query": "pair2.second"}),
    }
)
JOINED, AGAIN, FIRST, LAST = (
    AttentionPath(Head(0, 0), "pair1.second", "pair1.first"),
    AttentionPath(Head(0, 0), "pair2.second", "pair2.first"),
    AttentionPath(Head(1, 1), "query", "pair1.second"),
    AttentionPath(Head(2, 0), "query", "pair2.second"),
)
ASKED = {
    JOINED: {"x1": True, "x2": True},  # pair 1 is found by the other's x0, and all else follows
    AGAIN: {"x1": False, "x2": True},  # pair 2 of the other is found
    FIRST: {"x1": True, "x2": True},
    LAST: {"x1": None, "x2": True},  # the other's pair 2 also brings the other's x1
}
EXAMPLES = PROBLEM.examples(64, seed=0)


@pytest.fixture
def compiled():
    return compile_circuit(WALK, PROBLEM, n_layers=3, n_heads=2)


@pytest.mark.parametrize(("path", "asked"), ASKED.items())
def test_whose_answers_are_asked_for_follows_from_the_paths(path, asked):
    assert answers_if_exchanged(WALK, PROBLEM.layout, PROBLEM.read_at, path) == asked


@pytest.mark.parametrize("path", [JOINED, AGAIN, FIRST, LAST])
def test_a_compiled_model_gives_the_answers_asked_for(compiled, path):
    losses = _Plan(PROBLEM, WALK).losses(compiled, EXAMPLES, path, seed=1)
    assert losses[[PLAIN, OUTPUT, ATTENTION]].amax() < 1e-6


def test_what_heads_write_elsewhere_counts_in_a_compiled_model(compiled):
    # Where a compiled head has no path, it copies its own position, so another example's output brings wrong tokens.
    assert _Plan(PROBLEM, WALK).losses(compiled, EXAMPLES, FIRST, seed=1)[OTHERS] > 0.1


def test_up_to_the_exchanged_path_heads_attend_as_planted_and_uniformly_elsewhere(compiled):
    roles, n = EXAMPLES.roles, len(EXAMPLES)
    partner, _ = couples(roles, seed=1)
    with _four_runs(compiled, WALK, FIRST, roles, partner):
        _, cache = compiled.run_with_cache(EXAMPLES.inputs.repeat(4, *[1] * (EXAMPLES.inputs.ndim - 1)))
    plain, changed = (
        [cache["pattern", layer][run * n : (run + 1) * n] for layer in range(3)] for run in (PLAIN, ATTENTION)
    )
    joined, fetched = (
        OneHot(WALK.heads[path.head].rows, elsewhere="uniform").pattern(roles, plain[0].shape[-1])
        for path in (JOINED, FIRST)
    )
    partners_target = roles["pair1.second"].gather(1, partner)
    fetched[torch.arange(n)[:, None], roles["query"]] = one_hot(partners_target, fetched.shape[-1]).float()
    assert torch.equal(changed[0][:, 0], joined)
    assert torch.equal(changed[1][:, 1], fetched)
    assert torch.equal(changed[0][:, 1], plain[0][:, 1])  # a head without paths
    assert not torch.equal(changed[2][:, 0], plain[2][:, 0])  # a higher layer looks by itself, and finds the partner's


@pytest.mark.parametrize(("path", "run"), [(JOINED, OUTPUT), (FIRST, OUTPUT), (FIRST, ATTENTION)])
def test_a_model_whose_other_heads_bring_the_same_fails(path, run):
    heads = {Head(head.layer, 1 - head.index): own for head, own in WALK.heads.items()}
    other = compile_circuit(Circuit(heads), PROBLEM, n_layers=3, n_heads=2)
    assert _Plan(PROBLEM, WALK).losses(other, EXAMPLES, path, seed=1)[run] > 0.5


def test_training_lowers_the_loss_of_every_run(compiled):
    add_noise(compiled, 0.2, seed=0)
    losses = train_to_carry(compiled, PROBLEM, WALK, steps=40, batch=16, lr=1e-3, progress=lambda share: None)
    assert losses.shape == (40, 4)
    before, after = losses[:8].mean(dim=0), losses[-8:].mean(dim=0)
    assert (after < before).all()


def test_a_training_of_one_step_is_possible(compiled):
    assert train_to_carry(compiled, PROBLEM, WALK, steps=1, batch=2, progress=lambda share: None).shape == (1, 4)


def test_the_learning_rate_rises_and_falls_to_zero():
    rates = [_of_highest(step, 100) for step in range(101)]
    assert rates[4] == 1.0
    assert rates[:5] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[100] == pytest.approx(0)


def test_a_circuit_that_does_not_bring_an_answer_is_refused_and_the_answer_named(compiled):
    half = Circuit({head: own for head, own in WALK.heads.items() if head != LAST.head})
    with pytest.raises(BadInput, match="does not answer x2"):
        train_to_carry(compiled, PROBLEM, half)


def test_what_cannot_be_trained_is_refused_before_the_first_step(compiled):
    before = {name: weight.clone() for name, weight in compiled.state_dict().items()}
    with pytest.raises(BadInput, match="one instance only"):
        train_to_carry(compiled, ChainProblem(2, n_chains=1), WALK)
    with pytest.raises(BadInput, match="the model reads at most"):
        train_to_carry(compiled, ChainProblem(2, n_chains=5), WALK)
    for lr in (-1.0, 0.0, math.nan):
        with pytest.raises(BadInput, match="lr is"):
            train_to_carry(compiled, PROBLEM, WALK, lr=lr)
    assert all(torch.equal(weight, before[name]) for name, weight in compiled.state_dict().items())
    with pytest.raises(BadInput, match="no weight"):
        train_to_carry(compiled.requires_grad_(False), PROBLEM, WALK)


@pytest.mark.parametrize(
    "circuit", [Circuit({"L0H0": "uniform"}), Circuit({"L0H0": OneHot({"query": "position 3"})}), Circuit()]
)
def test_a_circuit_with_other_rows_than_paths_is_refused(compiled, circuit):
    with pytest.raises(BadInput, match="paths without conditions"):
        train_to_carry(compiled, PROBLEM, circuit)

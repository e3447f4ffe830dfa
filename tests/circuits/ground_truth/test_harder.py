"""Compiled models made harder to read: they still have their circuit, worked out by hand."""

from copy import deepcopy

import pytest
import torch

from benchmarks.ground_truth.harder import add_noise, directions, divide, eliminate, soften, superpose
from circuits import Circuit, Head, OneHot, evaluate, role_attention
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit
from circuits.mechanisms.one_hot import Condition
from circuits.model.layers import attention_patterns
from tests.handmade import ChainTask, walking_circuit
from tests.refusals import assert_refused

PROBLEM = ChainTask(1)  # three chains: pairs at positions 0 to 5, seconds at 1, 3, 5; queries at 6 to 8
JOINING, ASKING = Head(0, 0), Head(1, 0)
CIRCUIT = Circuit({JOINING: {"pair1.second": "pair1.first"}, ASKING: {"query": "pair1.second"}})
PATH = AttentionPath(ASKING, "query", "pair1.second")


def loss(model):
    return evaluate(model, PROBLEM, PROBLEM.examples(64, seed=0), [Circuit()]).mean().item()


def attention(model, head, target):
    seen = role_attention(model, PROBLEM.examples(64, seed=1))
    return seen[head.layer, head.index, 0, PROBLEM.roles.index(target)].item()


def test_a_leaking_head_gives_the_rest_to_the_same_role_of_the_other_chains():
    model = compile_circuit(CIRCUIT, PROBLEM)
    soften(model, [ASKING], 0.6, n_instances=3, leak=True)
    assert attention(model, ASKING, "pair1.second") == pytest.approx(0.6, abs=1e-4)
    to_seconds = dict(attention_patterns(model, PROBLEM.examples(4, seed=2)))[1][:, 0, 6:, 1:6:2]
    assert to_seconds.sort(dim=-1).values[..., :2] == pytest.approx(0.2 * torch.ones(4, 3, 2), abs=1e-4)
    assert loss(model) < 1e-3


def test_a_softened_head_gives_a_little_to_all_positions_and_the_model_still_solves_its_task():
    model = compile_circuit(CIRCUIT, PROBLEM)
    soften(model, [JOINING, ASKING], 0.8, n_instances=3)
    # Scores: 0 elsewhere, s for a common token, 3 s for the target's positions; e^s = 8 leaves 0.8 of three chains.
    # The target has 4 s, the other two seconds 3 s, itself and its pair's first member s, all others 0.
    assert attention(model, ASKING, "pair1.second") == pytest.approx(4096 / (4096 + 2 * 512 + 2 * 8 + 3), abs=1e-3)
    assert 0 < loss(model) < 0.01


def test_a_divided_path_holds_at_its_positions_and_elsewhere_the_head_attends_to_itself():
    model = compile_circuit(divide(CIRCUIT, PATH, Head(1, 1), [1, 5], PROBLEM), PROBLEM)
    examples = PROBLEM.examples(64, seed=3)
    pattern = dict(attention_patterns(model, examples))[1]
    example = torch.arange(64)[:, None]
    query, second = examples.roles["query"], examples.roles["pair1.second"]
    for index, positions in ((0, (1, 5)), (1, (3,))):
        here = torch.isin(second, torch.tensor(positions))
        assert pattern[example, index, query, second][here] == pytest.approx(torch.ones(int(here.sum())), abs=1e-4)
        assert pattern[example, index, query, query][~here] == pytest.approx(torch.ones(int((~here).sum())), abs=1e-4)
    assert loss(model) < 1e-3
    without = evaluate(model, PROBLEM, examples, [Circuit({Head(1, 1): "identity"})]).mean().item()
    assert without == pytest.approx(1 / 3, abs=1e-3)  # of three chains, one is at position 3


def test_a_path_that_is_divided_by_anything_but_the_position_of_its_target_is_not_compiled():
    ends = ("query", "pair1.second")
    for condition in (Condition("slot", "pair1.second", (0,)), Condition("position", "query", (6,))):
        divided = CIRCUIT.with_head(ASKING, OneHot([ends], where={ends: condition}))
        assert_refused("expected conditions on the position of the target", compile_circuit, divided, PROBLEM)


def test_what_is_found_at_two_positions_is_known_at_the_third_by_elimination():
    found = divide(CIRCUIT, PATH, Head(1, 1), [1, 5], PROBLEM).without_heads([Head(1, 1)])
    half = compile_circuit(found, PROBLEM, n_heads=2)
    assert loss(half) == pytest.approx(1 / 3, abs=0.05)  # nothing is answered in one slot of three
    model = eliminate(half, PROBLEM, {Head(1, 1): {"query": 3}})
    assert loss(model) < 1e-3
    examples = PROBLEM.examples(64, seed=5)
    pattern = dict(attention_patterns(model, examples))[1]
    example = torch.arange(64)[:, None]
    assert pattern[example, 1, examples.roles["query"], 3] == pytest.approx(torch.ones(64, 3), abs=1e-4)
    losses = evaluate(model, PROBLEM, examples, [Circuit({ASKING: "identity"}), Circuit({Head(1, 1): "identity"})])
    # Without the head that compares, the fallback is everyone's answer: right in one slot, wrong (1 + 1) in two.
    assert losses.mean(dim=(1, 2)).tolist() == pytest.approx([4 / 3, 1 / 3], abs=1e-3)


def test_opposite_tokens_share_a_dimension_and_the_model_computes_the_same():
    assert directions(4, 0.0, seed=0).tolist() == [[1, 0], [-1, 0], [0, 1], [0, -1]]
    model = compile_circuit(CIRCUIT, PROBLEM)
    small = superpose(model)
    assert small.cfg.d_model == 6 + 2 * 9 + 6  # of 12 tokens; the positions and the distractors' noise; the answers
    assert small.embed.W_E[:, :6].count_nonzero() == small.embed.W_E.count_nonzero() == 12
    inputs = PROBLEM.examples(16, seed=4).inputs
    with torch.no_grad():
        assert small(inputs)[:, 6:] == pytest.approx(model(inputs)[:, 6:], abs=1e-4)
    assert loss(superpose(model, tilt=0.05)) < 0.01
    assert loss(superpose(model, tilt=1.0)) > 0.1
    odd = ChainTask(2, n_symbols=5)
    assert_refused("15 tokens; expected an even number", superpose, compile_circuit(walking_circuit(2), odd))


def test_the_noise_is_a_share_of_each_parameters_root_mean_square():
    model = compile_circuit(CIRCUIT, PROBLEM)
    before = deepcopy(model)
    add_noise(model, 0.5, seed=0)
    for own, was in zip(model.parameters(), before.parameters(), strict=True):
        rms = was.square().mean().sqrt().item()
        assert (own - was).square().mean().sqrt().item() == pytest.approx(0.5 * rms, rel=3 / was.numel() ** 0.5)
    assert loss(model) > 0.1

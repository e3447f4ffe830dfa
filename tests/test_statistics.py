from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
import torch

from circuits import BadInput, Circuit, Head, OneHot, Uniform, evaluate
from circuits import statistics as statistics_module
from circuits.circuit import Path
from circuits.statistics import (
    LEVEL,
    Interval,
    against_chance,
    holm,
    random_circuit,
    with_random_path,
)


@pytest.fixture(scope="module")
def found(model, problem, circuit):
    return against_chance(model, problem, circuit, n_examples=128)


def test_the_right_circuit_beats_all_random_ones_in_which_the_answer_is_not_fetched(found):
    # Led to pair1.first the answer scores 2, without a row for the query 1; what the lower head does is not missed.
    assert len(found.random_losses) == 200
    assert found.beaten == sum(loss > 0.9 for loss in found.random_losses)
    assert 100 < found.beaten < 200


def test_what_a_path_costs_is_what_its_removal_adds(found):
    cost = found.costs[Path(Head(1, 0), "query", "pair1.second")]
    assert cost.mean == pytest.approx(0.92, abs=0.01)
    assert cost.low <= cost.mean <= cost.high


def test_the_only_path_that_matters_to_the_whole_circuit_costs_more_than_chance(found):
    assert found.p_values[Path(Head(1, 0), "query", "pair1.second")] < 0.05
    assert found.p_values[Path(Head(0, 0), "pair1.second", "pair1.first")] == 1.0


def test_heads_made_simple_for_no_reason_are_seen_to_add_something(model, problem, circuit):
    blind = circuit.with_head(Head(1, 0), Uniform())
    found = against_chance(model, problem, blind, n_examples=64)
    assert found.restored[Head(1, 0)].mean > 0.5
    assert found.all_restored.mean == pytest.approx(found.restored[Head(1, 0)].mean)


def test_the_sentences_carry_the_numbers(found):
    text = " ".join(found.sentences())
    assert f"{found.beaten} of 200 random circuits" in text
    assert "95% bootstrap intervals" in text


def test_an_interval_holds_the_mean_and_shrinks_with_more_examples():
    generator = torch.Generator().manual_seed(0)
    few, many = (Interval.of(torch.randn(n, generator=generator), seed=0) for n in (50, 5000))
    assert few.low < few.mean < few.high
    assert many.high - many.low < (few.high - few.low) / 5
    assert many.high - many.low == pytest.approx(2 * 1.96 / 5000**0.5, rel=0.1)


def test_holms_correction_is_the_one_worked_out_by_hand():
    paths = [Path(Head(layer, 0), "query", "pair1.second") for layer in range(3)]
    corrected = holm(dict(zip(paths, [0.01, 0.04, 0.03], strict=True)))
    assert [corrected[path] for path in paths] == pytest.approx([0.03, 0.06, 0.06])


def test_random_circuits_have_as_many_paths_in_the_same_heads(circuit, problem):
    roles, rng = problem.examples(8, seed=0).roles, np.random.default_rng(0)
    for _ in range(20):
        other = random_circuit(circuit, roles, rng)
        assert [path.head for path in other.paths] == [path.head for path in circuit.paths]
        other.check(roles, 2, 1)


def test_a_random_path_is_added_where_none_was(circuit, problem):
    roles, rng = problem.examples(8, seed=0).roles, np.random.default_rng(0)
    for _ in range(20):
        more = with_random_path(circuit, roles, rng)
        assert set(more.paths) > set(circuit.paths)
        assert len(more.paths) == 1 + len(circuit.paths)
    full = {"query": "pair1.second", "pair1.second": "pair1.first"}
    assert with_random_path(Circuit({Head(1, 0): OneHot(full)}), roles, rng) is None


def test_too_few_superfluous_paths_to_pass_the_correction_are_said_to_be_too_few(found):
    # Two paths are tested: with 20 superfluous ones the smallest corrected p is 2/21, above the level.
    few = replace(found, superfluous_costs=(0.0,) * 20)
    assert "Only 20 random paths could be added" in " ".join(few.sentences())
    enough = replace(found, superfluous_costs=(0.0,) * 200)
    assert "Against 200 superfluous paths" in " ".join(enough.sentences())


def test_every_path_can_pass_when_all_that_were_drawn_are_superfluous(model, problem, circuit):
    drawn = []

    def counted(model, problem, examples, circuits, *rest):
        drawn.append(len(circuits))
        return evaluate(model, problem, examples, circuits, *rest)

    with patch.object(statistics_module, "evaluate", counted):
        against_chance(model, problem, circuit, n_examples=8)
    assert len(circuit.paths) / drawn[-1] < LEVEL  # the last are the circuit and those with a path more


@pytest.mark.parametrize("n_examples", [0, 1])
def test_too_few_examples_are_refused(model, problem, circuit, n_examples):
    with pytest.raises(BadInput, match="examples"):
        against_chance(model, problem, circuit, n_examples=n_examples)

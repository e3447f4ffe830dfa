import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from circuits import BadInput, Circuit, Head, OneHot
from circuits.circuit import AttentionPath
from circuits.mechanisms import Previous, Uniform
from circuits.null_models.chance import (
    Interval,
    against_chance,
    holm,
    random_circuits,
    with_one_path_more,
)


@pytest.fixture(scope="module")
def found(model, task, circuit):
    return against_chance(model, task, circuit, n_examples=128)


def test_the_right_circuit_beats_all_others_in_which_the_answer_is_not_fetched(found):
    # Three pairs of roles in each of two heads: 9 circuits, 8 others. Led to pair1.first the answer scores 2, without
    # a row for the query 1; what the lower head does is not missed, so 2 of the 8 are as good.
    assert len(found.random_losses) == 8
    assert sum(loss > 0.9 for loss in found.random_losses) == found.beaten == 6


def test_what_a_path_costs_is_what_its_removal_adds(found):
    cost = found.costs[AttentionPath(Head(1, 0), "query", "pair1.second")]
    assert cost.mean == pytest.approx(0.92, abs=0.01)
    assert cost.low <= cost.mean <= cost.high


def test_the_only_path_that_matters_to_the_whole_circuit_costs_more_than_chance(found):
    n = len(found.redundant_costs)
    assert found.p_values[AttentionPath(Head(1, 0), "query", "pair1.second")] == pytest.approx(2 / (1 + n))
    assert found.p_values[AttentionPath(Head(0, 0), "pair1.second", "pair1.first")] == 1.0


def test_heads_made_simple_for_no_reason_are_seen_to_add_something(model, task, circuit):
    blind = circuit.with_head(Head(1, 0), Uniform())
    found = against_chance(model, task, blind, n_examples=64)
    assert found.unablating[Head(1, 0)].mean > 0.5
    assert found.unablating_all.mean == pytest.approx(found.unablating[Head(1, 0)].mean)


def test_the_sentences_carry_the_numbers(found):
    text = " ".join(found.sentences())
    assert f"{found.beaten} of 8 different random circuits" in text
    assert re.search(r"p = 0\.\d{3}", text)
    assert "95% bootstrap intervals" in text


def test_an_interval_holds_the_mean_and_shrinks_with_more_examples():
    generator = torch.Generator().manual_seed(0)
    few, many = (Interval.of(torch.randn(n, generator=generator), seed=0) for n in (50, 5000))
    assert few.low < few.mean < few.high
    assert many.high - many.low < (few.high - few.low) / 5
    assert many.high - many.low == pytest.approx(2 * 1.96 / 5000**0.5, rel=0.1)


def test_holms_correction_is_the_one_worked_out_by_hand():
    paths = [AttentionPath(Head(layer, 0), "query", "pair1.second") for layer in range(3)]
    corrected = holm(dict(zip(paths, [0.01, 0.04, 0.03], strict=True)))
    assert [corrected[path] for path in paths] == pytest.approx([0.03, 0.06, 0.06])


def test_random_circuits_differ_and_have_as_many_paths_in_the_same_heads(circuit, task):
    roles = task.examples(8, seed=0).roles
    others = random_circuits(circuit, roles, np.random.default_rng(0))
    assert len(set(others)) == len(others) == 8
    assert circuit not in others
    for other in others:
        assert [path.head for path in other.paths] == [path.head for path in circuit.paths]
        other.check(roles, 2, 1)


def test_random_circuits_keep_previous_token_heads(circuit, task):
    told_otherwise = circuit.with_head(Head(0, 0), Previous())
    others = random_circuits(told_otherwise, task.examples(8, seed=0).roles, np.random.default_rng(0))
    assert {other.heads[Head(0, 0)] for other in others} == {Previous()}
    assert len(others) == 2


def test_random_circuits_keep_rows_that_are_no_paths(task):
    head = OneHot([("query", "pair1.second"), ("pair1.second", "position 0")])
    for other in random_circuits(Circuit({Head(1, 0): head}), task.examples(8, seed=0).roles, np.random.default_rng(0)):
        (path,) = other.paths
        assert (("pair1.second", "position 0") in other.heads[Head(1, 0)].rows) == (path.source == "query")


def test_a_circuit_without_alternatives_is_said_to_have_none(model, task):
    found = against_chance(model, task, Circuit({Head(0, 0): Previous()}), n_examples=8)
    assert "No other circuit has as many paths in the same heads." in found.sentences()


def test_every_path_is_added_once_where_none_was(circuit, task):
    roles = task.examples(8, seed=0).roles
    more = with_one_path_more(circuit, roles)
    assert len(set(more)) == len(more) == 3  # query -> pair1.first or .second below, pair1.second -> pair1.first above
    assert all(set(other.paths) > set(circuit.paths) and len(other.paths) == 3 for other in more)
    full = {"query": "pair1.second", "pair1.second": "pair1.first"}
    assert with_one_path_more(Circuit({Head(1, 0): OneHot(full)}), roles) == []
    simple = with_one_path_more(Circuit({Head(1, 0): Uniform()}), roles)
    assert [other.heads[Head(1, 0)].elsewhere for other in simple] == ["uniform"] * 3


def test_too_few_redundant_paths_to_pass_the_correction_are_said_to_be_too_few(found):
    # Two paths are tested: with 20 redundant ones the smallest corrected p is 2/21, above the level.
    few = replace(found, redundant_costs=(0.0,) * 20)
    assert "Only 20 different paths can be added" in " ".join(few.sentences())
    enough = replace(found, redundant_costs=(0.0,) * 200)
    assert "200 different redundant paths" in " ".join(enough.sentences())


@pytest.mark.slow
def test_no_path_is_called_redundant_where_the_circuit_itself_is_above_the_threshold(model, task, circuit):
    wrong = circuit.with_head(Head(1, 0), OneHot({"query": "pair1.first"}))
    found = against_chance(model, task, wrong, n_examples=8)
    assert found.redundant_costs == ()
    assert "Only 0 different paths can be added" in " ".join(found.sentences())


@pytest.mark.parametrize("n_examples", [0, 1])
def test_too_few_examples_are_refused(model, task, circuit, n_examples):
    with pytest.raises(BadInput, match="examples"):
        against_chance(model, task, circuit, n_examples=n_examples)


def test_a_circuit_with_more_rows_than_roles_that_can_look_elsewhere_gets_random_rivals_too(task):
    rows = {"query": "pair1.second", "pair1.second": "pair1.first", "pair1.first": "pair1.first"}
    roles = task.examples(4, seed=0).roles
    rivals = random_circuits(Circuit({Head(1, 0): OneHot(rows)}), roles, np.random.default_rng(0))
    assert all(len(rival.paths) == 2 for rival in rivals)
    assert rivals


def test_an_interval_of_a_share_is_wilsons():
    # Wilson (1927) for 8 of 10, worked out by hand with z = 1.959964
    interval = Interval.of_share(8, 10)
    assert interval.mean == 0.8
    assert interval.low == pytest.approx(0.49016, abs=1e-4)
    assert interval.high == pytest.approx(0.94332, abs=1e-4)
    assert Interval.of_share(0, 5).low == 0
    assert Interval.of_share(5, 5).high == 1

"""The benchmark of ground truth: its check can fail, and its figures are worked out by hand."""

from dataclasses import replace

import pytest
import torch

from benchmarks.ground_truth.__main__ import main
from benchmarks.ground_truth.levels import LEVELS, backed_up, compiled, divided
from benchmarks.ground_truth.truth import carried, paths_found, precision_and_recall, slots_right
from circuits import Circuit, FixedPattern, Head, OneHot
from circuits.circuit import AttentionPath
from circuits.mechanisms import Previous

A, B, C, D = (AttentionPath(Head(0, 0), "query", f"pair{k}.second") for k in range(1, 5))


def test_of_two_paths_of_which_one_is_enough_a_second_one_is_too_many():
    needed = [frozenset([A]), frozenset([B, C])]
    assert precision_and_recall([A, C], needed) == (1.0, 1.0)
    assert precision_and_recall([A, B, C], needed) == (2 / 3, 1.0)
    assert precision_and_recall([B, D], needed) == (0.5, 0.5)
    assert precision_and_recall([], needed) == (0.0, 0.0)


def test_a_model_that_lost_a_head_does_not_carry_its_circuit():
    truth = compiled(0)
    assert carried(truth).ok
    with torch.no_grad():
        truth.model.blocks[truth.circuit.paths[-1].head.layer].attn.W_O.zero_()
    assert not carried(truth).ok


def test_a_found_path_is_right_on_the_slots_where_it_was_planted():
    truth = divided(1)
    paths = {path for alternatives in truth.needed for path in alternatives}
    assert slots_right(truth.circuit, paths, truth) == 1
    without_slots = Circuit({head: OneHot(own.rows) for head, own in truth.circuit.heads.items()})
    expected = [1 / 3, 2 / 3]  # a divided path holds in one of three slots, or in two
    n_divided = sum(len(own.where) for own in truth.circuit.heads.values())
    right = sum(expected) * n_divided / 2 + len(paths) - n_divided
    assert slots_right(without_slots, paths, truth) == pytest.approx(right / len(paths), abs=0.05)
    assert slots_right(truth.circuit, [], truth) == 0


@pytest.mark.parametrize("seeds", ["0", "-1", "two", "16"])
def test_no_seeds_and_seeds_without_weights_are_one_line(seeds, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["ground_truth", "--level", "trained", "--seeds", seeds])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "expected a" in capsys.readouterr().err


def one_step():
    """A model of one step with its two paths, that of the only head that joins the pairs first, and an idle head."""
    truth = compiled(0)
    return truth, *truth.circuit.paths, next(head for head in truth.all_heads if head not in truth.true_heads)


def test_a_pattern_that_has_a_planted_path_counts_as_it_and_elsewhere_its_rows_are_free():
    truth, joining, asking, idle = one_step()
    before = Previous().pattern(truth.task.examples(2, 0).roles, truth.task.n_positions)[0]
    found = truth.circuit.with_head(joining.head, Previous())
    assert paths_found(found, truth) == {joining, asking}
    found = found.with_head(joining.head, FixedPattern(before, "map")).with_head(idle, FixedPattern(before, "map"))
    assert paths_found(found, truth) == {joining, asking}


def test_previous_in_a_head_without_a_planted_path_is_a_wrong_path_and_a_map_on_some_instances_is_none():
    truth, joining, asking, idle = one_step()
    wrong = paths_found(truth.circuit.with_head(idle, Previous()), truth) - {joining, asking}
    assert [path.head for path in wrong] == [idle]
    roles, n = truth.task.examples(2, 0).roles, truth.task.n_positions
    half = Previous().pattern(roles, n)[0].clone()
    half[1] = torch.eye(n)[1]  # the second member at position 1 attends to itself
    assert paths_found(truth.circuit.with_head(joining.head, FixedPattern(half, "map")), truth) == {asking}


def test_a_path_that_another_one_backs_up_is_not_needed_alone():
    truth = backed_up(0)
    assert carried(truth).ok
    alone = tuple(frozenset([path]) for paths in truth.needed for path in paths)
    assert carried(replace(truth, needed=alone)).least < 0.01
    assert truth.open_heads
    assert not truth.true_heads & truth.open_heads


@pytest.mark.slow
# "combined" has all of those that are left out.
@pytest.mark.parametrize("level", sorted(LEVELS.keys() - {"soft", "noisy", "superposed"}))
def test_on_every_level_the_models_carry_their_circuits(level):
    assert carried(LEVELS[level](1)).ok

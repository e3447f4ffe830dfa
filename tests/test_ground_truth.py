"""The benchmark of ground truth: its check can fail, and its figures are worked out by hand."""

from dataclasses import replace

import pytest
import torch

from benchmarks.ground_truth.idle_heads import ABLATIONS, costs
from benchmarks.ground_truth.levels import LEVELS, backed_up, compiled
from benchmarks.ground_truth.truth import carried, precision_and_recall
from circuits import Head
from circuits.circuit import AttentionPath

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


def test_a_path_that_another_one_backs_up_is_not_needed_alone():
    truth = backed_up(0)
    assert carried(truth).ok
    alone = tuple(frozenset([path]) for paths in truth.needed for path in paths)
    assert carried(replace(truth, needed=alone)).least < 0.01
    assert truth.open_heads
    assert not truth.true_heads & truth.open_heads


def test_an_idle_head_of_a_compiled_model_costs_nothing_and_a_needed_one_costs_by_every_ablation_of_its_output():
    truth = compiled(1)
    for head, losses in costs(truth).items():
        changes = {name: losses[name] - losses["own"] for name in ABLATIONS}
        if head in truth.true_heads:
            assert min(changes[name] for name in ("mean output", "uniform", "identity")) > 0.1
        else:
            assert max(changes.values()) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("level", LEVELS)
def test_on_every_level_the_models_carry_their_circuits(level):
    truth = LEVELS[level](1)
    assert carried(truth).ok

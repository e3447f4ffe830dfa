import math

import pandas as pd
import pytest
import run
from run import Row, decided, later_need_more, order, short_of_layers


@pytest.mark.parametrize(
    ("fell", "expected"),
    [
        ((100, 200, math.nan), "in order"),
        ((100, 200, 200), "at once"),
        ((None, 100, 300), "otherwise"),
        ((200, 200, 100), "otherwise"),
        ((100, math.nan, None), None),
    ],
)
def test_symbols_fall_in_order_at_once_or_otherwise(fell, expected):
    assert order(fell) == expected


def test_symbols_that_fell_at_once_are_undecided_and_not_in_order():
    assert decided(["in order", "at once", "otherwise"]) == [True, False]


def test_the_loss_without_the_curriculum_counts_only_beside_a_control_that_learned_x1(monkeypatch):
    runs = [("figure4_nonic_2_seed_0", 0.75, None), ("figure4_nonic_4_seed_0", 0.75, None)]
    runs += [("figure4_nonic_2_with_curriculum_seed_0", 0.1, 0.1), ("figure4_nonic_4_with_curriculum_seed_0", 0.7, 0.6)]
    table = pd.DataFrame(runs, columns=["run", "loss", "x1_loss"]).assign(preset="figure4_nonic_2")
    monkeypatch.setattr(run, "ended", lambda: table)
    assert run.without_curriculum().met == [True]


def test_later_symbols_are_judged_by_the_runs_of_the_recipe(monkeypatch):
    losses = {"x1_loss": [0.8] + [0.0] * 7, "x2_loss": [0.8] * 2 + [0.1] * 6, "x3_loss": [0.8] * 3 + [0.2] * 5}
    table = pd.DataFrame(losses).assign(layers=range(1, 9), preset=[f"figure4_ic_{n}" for n in range(1, 9)])
    monkeypatch.setattr(run, "ended", lambda: table)
    assert run.later().met == [True]  # earlier recipes differ


def test_a_verdict_needs_a_case_and_as_many_as_the_paper_has_and_one_that_fails_is_enough():
    said = [Row("8.2", "it is so", "-", 2, met, "", "").verdict for met in ([], [True], [True, True], [True, False])]
    assert said == ["not measured", "holds at smaller scale", "holds", "differs"]


def test_a_run_without_enough_layers_is_judged_by_the_lowest_loss_of_the_symbols_that_take_more():
    runs = pd.DataFrame(
        [{"layers": 1, "hops": 2, "x1_loss": 0.8, "x2_loss": 0.6}, {"layers": 3, "hops": 1, "x1_loss": 0.1}]
    )
    assert short_of_layers(runs, lambda k: k + 1) == [("D = 2, layers 1", 0.6)]


def test_later_symbols_need_more_layers_only_if_losses_rise_and_the_last_needs_more_than_the_first():
    assert later_need_more([0.1, 0.2, 0.3], [2, 2, 3])
    assert not later_need_more([0.1, 0.2, 0.2], [2, 2, 3])
    assert not later_need_more([0.1, 0.2, 0.3], [2, 2, 2])
    assert not later_need_more([0.1, 0.2, 0.3], [2, 3, None])

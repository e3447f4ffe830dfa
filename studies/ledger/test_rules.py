import math

import pandas as pd
import pytest
from run import Row, later_need_more, order, short_of_layers


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

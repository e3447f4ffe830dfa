import math

import pytest
from run import all_met, later_need_more, order, row


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


def test_a_missing_case_decides_nothing_unless_another_fails():
    assert all_met([True, True]) is True
    assert all_met([True], complete=False) is None
    assert all_met([True, False], complete=False) is False
    assert all_met([]) is None
    said = [row("8.2", "it is so", holds=holds, smaller=True)["verdict"] for holds in (None, False, True)]
    assert said == ["not measured", "differs", "holds at smaller scale"]


def test_later_symbols_need_more_layers_only_if_losses_rise_and_the_last_needs_more_than_the_first():
    assert later_need_more([0.1, 0.2, 0.3], [2, 2, 3])
    assert not later_need_more([0.1, 0.2, 0.2], [2, 2, 3])
    assert not later_need_more([0.1, 0.2, 0.3], [2, 2, 2])
    assert not later_need_more([0.1, 0.2, 0.3], [2, 3, None])

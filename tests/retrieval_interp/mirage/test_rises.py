import pytest

from retrieval_interp.mirage.rises import GRADUAL, JUMPS, NOT_RESOLVED, NOT_RISEN, rise, value_at


def test_a_rise_within_a_quarter_of_the_steps_is_a_jump():
    found = rise({100: 0.0, 900: 0.0, 1000: 1.0})
    assert (found.kind, found.begins, found.ends) == (JUMPS, 910, pytest.approx(990))
    assert found.share == pytest.approx(80 / 990)


def test_a_rise_over_more_steps_is_gradual():
    found = rise({step: step / 1000 for step in range(0, 1001, 10)})
    assert (found.kind, found.begins, found.ends) == (GRADUAL, 100, pytest.approx(900))


def test_the_way_ends_at_the_best_level_unless_another_is_given():
    curve = {0: 0.0, 700: 0.0, 800: 0.4, 1000: 0.4, 2000: 0.8}
    assert rise(curve).ends == pytest.approx(1800)
    assert rise(curve, end=0.4).ends == pytest.approx(790)
    assert rise(curve, end=0.9).kind == NOT_RISEN


def test_a_curve_that_collapses_and_comes_back_begins_its_rise_before_its_first_arrival_only():
    curve = {0: 0.0, 100: 0.5, 200: 0.0, 900: 0.0, 1000: 1.0, 1100: 0.0, 1200: 1.0}
    found = rise(curve)
    assert (found.begins, found.ends) == (910, pytest.approx(990))


def test_a_curve_that_stays_near_a_guess_has_not_risen():
    assert rise({0: -0.3, 100: 0.0, 200: 0.09}).kind == NOT_RISEN


def test_a_jump_between_distant_checkpoints_is_not_resolved():
    assert rise({0: 0.0, 400: 0.0, 800: 1.0}).kind == NOT_RESOLVED
    assert rise({0: 0.0, 4000: 0.0, 4400: 1.0}).kind == JUMPS


def test_a_rise_that_began_before_the_first_checkpoint_is_gradual_only_if_it_took_long_enough():
    assert rise({100: 0.5, 200: 1.0}).kind == GRADUAL
    assert rise({100: 0.5, 110: 1.0}).kind == NOT_RESOLVED
    assert rise({100: 1.0, 110: 1.0}).kind == NOT_RESOLVED


def test_a_value_is_interpolated_and_beyond_the_ends_that_of_the_end():
    curve = {10: 1.0, 20: 3.0, 40: 3.0}
    assert [value_at(curve, step) for step in (0.0, 10.0, 15.0, 30.0, 50.0)] == [1.0, 1.0, 2.0, 3.0, 3.0]

"""Numbers mean the same in every precision, with any number of threads, and however many examples run at once."""

from dataclasses import replace

import pytest

from benchmarks.numbers import SETTINGS, USUAL, compare, report
from circuits import evaluation

FEW = 64


@pytest.fixture(scope="module")
def usual():
    return {n: report("induction", replace(USUAL, examples=n), threshold=0.1)[0] for n in (FEW, 4096)}


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.change)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(usual, setting):
    n_examples = 4096 if setting.batch == 4096 else FEW
    halved, at_once = report("induction", replace(setting, examples=n_examples), threshold=0.1)
    found = compare(halved, usual[n_examples], setting)
    assert found["same_verdicts"]
    assert found["passed"]
    assert found["within"]
    assert setting.batch in (None, at_once) or at_once < setting.batch == 256, (
        "of 64 examples so many never run at once"
    )


def test_what_is_half_precision_differs_at_all(usual):
    halved, _ = report("induction", replace(SETTINGS[0], examples=FEW), threshold=0.1)
    assert compare(halved, usual[FEW], SETTINGS[0])["difference_of_roots"] > 0


def test_another_verdict_and_another_loss_are_told(usual):
    stricter, _ = report("induction", replace(USUAL, examples=FEW), threshold=0.01)
    assert not compare(stricter, usual[FEW], USUAL)["same_verdicts"]
    others, _ = report("induction", replace(USUAL, examples=FEW - 1), threshold=0.1)
    assert not compare(others, usual[FEW], USUAL)["within"]


def test_a_setting_lasts_no_longer_than_its_report():
    before = evaluation.POSITIONS_AT_ONCE, evaluation.Batch.losses
    _, at_once = report("induction", replace(USUAL, batch=2, examples=2), threshold=0.1)
    assert at_once == 2
    assert before == (evaluation.POSITIONS_AT_ONCE, evaluation.Batch.losses)

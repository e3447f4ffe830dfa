"""Numbers mean the same in every precision, with any number of threads, and however many examples run at once."""

from dataclasses import replace

import pytest

from benchmarks.numbers import SETTINGS, USUAL, compare, report
from circuits import evaluation

FEW = 64


@pytest.fixture(scope="module")
def usual():
    return report("induction", replace(USUAL, examples=FEW), threshold=0.1)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.change)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(usual, setting):
    found = compare(report("induction", replace(setting, examples=FEW), threshold=0.1), usual, setting)
    assert found["same_verdicts"]
    assert found["passed"]
    assert found["within"]


def test_what_is_half_precision_differs_at_all(usual):
    halved = report("induction", replace(SETTINGS[0], examples=FEW), threshold=0.1)
    assert compare(halved, usual, SETTINGS[0])["difference_of_roots"] > 0


def test_another_verdict_and_another_loss_are_told(usual):
    stricter = report("induction", replace(USUAL, examples=FEW), threshold=0.01)
    assert not compare(stricter, usual, USUAL)["same_verdicts"]
    others = report("induction", replace(USUAL, examples=FEW - 1), threshold=0.1)
    assert not compare(others, usual, USUAL)["within"]


def test_so_many_sequences_run_at_once_as_the_setting_says(monkeypatch):
    sizes, run = [], evaluation.Batch.losses
    monkeypatch.setattr(evaluation.Batch, "losses", lambda batch, layers: sizes.append(batch.n) or run(batch, layers))
    one_by_one = next(setting for setting in SETTINGS if setting.batch == 1)
    before = evaluation.POSITIONS_AT_ONCE
    report("induction", replace(one_by_one, examples=2), threshold=0.1)
    assert set(sizes) == {1}
    assert before == evaluation.POSITIONS_AT_ONCE

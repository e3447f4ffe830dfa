"""Numbers mean the same in every precision, with any number of threads, and however many examples run at once."""

from dataclasses import replace

import pytest
import torch

from benchmarks.robustness.numerics import SETTINGS, USUAL, compare, losses, report
from circuits import Circuit, evaluate
from circuits.ablation import evaluation
from circuits.model import batching
from retrieval_interp import load

FEW = 128
# By how much a loss of this small model may differ from that in fp32: absolutely, and as a share of it.
TOLERANCE = {"bfloat16": (2e-3, 0.02), "float16": (2e-4, 0.002), "2 threads": (1e-6, 1e-5)}


@pytest.fixture(scope="module")
def usual():
    return {n: report("induction", replace(USUAL, examples=n), threshold=0.1)[0] for n in (32, FEW)}


# 4,096 sequences at once are run below.
@pytest.mark.slow
@pytest.mark.parametrize("setting", SETTINGS[:-1], ids=lambda setting: setting.change)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(usual, setting):
    n_examples = min(FEW, setting.examples)
    other, at_once = report("induction", replace(setting, examples=n_examples), threshold=0.1)
    found = compare(other, usual[n_examples], setting)
    assert found["same_verdicts"]
    assert found["passed"]
    assert found["within"]
    absolute, share = TOLERANCE.get(setting.change, (1e-5, 1e-4))
    torch.testing.assert_close(losses(other), losses(usual[n_examples]), atol=absolute, rtol=share)
    assert at_once <= (setting.batch or at_once)


@pytest.mark.slow
def test_how_many_examples_run_at_once_hardly_changes_a_loss(monkeypatch):
    model, task, circuit = load("induction")
    examples = task.examples(4096, seed=1)
    circuits = [Circuit(), circuit, circuit.without(circuit.paths[0])]
    found = {}
    for at_once, n in ((1, 64), (16, 64), (512, 4096), (4096, 4096)):
        monkeypatch.setattr(batching, "POSITIONS_AT_ONCE", at_once * len(circuits) * examples.inputs.shape[1])
        found[at_once] = evaluate(model, task, examples.take(slice(0, n)), circuits)
    for at_once, n in ((1, 64), (16, 64), (512, 4096)):
        torch.testing.assert_close(found[at_once], found[4096][:, :n], atol=1e-5, rtol=1e-4)


def test_what_is_half_precision_differs_at_all(usual):
    halved, _ = report("induction", replace(SETTINGS[0], examples=FEW), threshold=0.1)
    assert compare(halved, usual[FEW], SETTINGS[0])["difference_of_roots"] > 0


@pytest.mark.slow
def test_another_verdict_and_another_loss_are_told(usual):
    stricter, _ = report("induction", replace(USUAL, examples=FEW), threshold=0.01)
    assert not compare(stricter, usual[FEW], USUAL)["same_verdicts"]
    others, _ = report("induction", replace(USUAL, examples=FEW - 1), threshold=0.1)
    assert not compare(others, usual[FEW], USUAL)["within"]


@pytest.mark.slow
def test_a_setting_lasts_no_longer_than_its_report():
    before = batching.POSITIONS_AT_ONCE, evaluation.Batch.losses
    _, at_once = report("induction", replace(USUAL, batch=2, examples=2), threshold=0.1)
    assert at_once == 2
    assert before == (batching.POSITIONS_AT_ONCE, evaluation.Batch.losses)

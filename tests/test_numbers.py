"""Numbers mean the same in every precision, with any number of threads, and however many examples run at once."""

import pytest
import torch

from circuits import Circuit, evaluate, validate
from circuits import evaluation as engine
from retrieval_interp import load

# By how much a loss may differ from that in fp32: absolutely, and as a share of it.
TOLERANCE = {torch.bfloat16: (2e-3, 0.02), torch.float16: (2e-4, 0.002)}
SEED, THRESHOLD = 1, 0.1


@pytest.fixture(scope="module")
def whole():
    model, task, circuit = load("induction")
    return validate(model, task, circuit, n_examples=128, seed=SEED, threshold=THRESHOLD)


def losses(report):
    return torch.tensor(
        [report.full.mean, report.combined.mean, *(loss.mean for path in report.paths for loss in path.losses.values())]
    )


def outcomes(report):
    verdicts = [(verdict.step, verdict.outcome) for verdict in report.verdicts]
    heads = [(head.simplest, head.alone) for head in report.heads]
    return verdicts, heads, [(path.needed, path.rivals) for path in report.paths], report.passed


@pytest.mark.parametrize("precision", TOLERANCE, ids=str)
def test_half_precision_changes_no_verdict_and_hardly_a_loss(whole, precision):
    model, task, circuit = load("induction")
    model.to(precision, print_details=False)
    report = validate(model, task, circuit, n_examples=128, seed=SEED, threshold=THRESHOLD)
    assert outcomes(report) == outcomes(whole)
    absolute, share = TOLERANCE[precision]
    torch.testing.assert_close(losses(report), losses(whole), atol=absolute, rtol=share)


def test_two_threads_change_no_verdict_and_hardly_a_loss(whole):
    model, task, circuit = load("induction")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        report = validate(model, task, circuit, n_examples=128, seed=SEED, threshold=THRESHOLD)
    finally:
        torch.set_num_threads(before)
    assert outcomes(report) == outcomes(whole)
    torch.testing.assert_close(losses(report), losses(whole), atol=1e-6, rtol=1e-5)


def test_how_many_examples_run_at_once_hardly_changes_a_loss(monkeypatch):
    model, task, circuit = load("induction")
    examples = task.examples(4096, SEED)
    circuits = [Circuit(), circuit, circuit.without(circuit.paths[0])]
    found = {}
    for at_once, n in ((1, 64), (16, 64), (512, 4096), (4096, 4096)):
        monkeypatch.setattr(engine, "POSITIONS_AT_ONCE", at_once * len(circuits) * examples.inputs.shape[1])
        found[at_once] = evaluate(model, task, examples.take(slice(0, n)), circuits)
    for at_once, n in ((1, 64), (16, 64), (512, 4096)):
        torch.testing.assert_close(found[at_once], found[4096][:, :n], atol=1e-5, rtol=1e-4)

"""Numbers mean the same in every precision and with any number of threads."""

import pytest
import torch

from circuits import validate
from retrieval_interp import load

N = {"bfloat16": 256, "2 threads": 32}  # examples
# By how much a loss of this small model may differ from that in fp32: absolutely, and as a share of it.
TOLERANCE = {"bfloat16": (2e-3, 0.02), "2 threads": (1e-6, 1e-5)}


def report(changed, n_examples):
    model, task, circuit = load("one_layer")
    if changed == "bfloat16":
        model.to(torch.bfloat16, print_details=False)
    torch.set_num_threads(2 if changed == "2 threads" else 1)
    try:
        return validate(model, task, circuit, n_examples=n_examples, seed=1)
    finally:
        torch.set_num_threads(1)


def losses(report):
    """The mean of every loss in a report: unablated, combined, and without each part."""
    each = [one.loss.mean for part in report.parts for one in part.losses.values()]
    return torch.tensor([report.scale.own.mean, report.combined.loss.mean, *each])


def outcomes(report):
    """All decisions of a report: verdicts, and which parts matter."""
    verdicts = [(verdict.name, verdict.decision) for verdict in report.verdicts]
    return verdicts, [part.needed for part in report.parts], report.uniqueness.as_good, report.decision


@pytest.mark.slow
@pytest.mark.parametrize("changed", N)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(changed):
    usual, other = report("nothing", N[changed]), report(changed, N[changed])
    assert other.decision == ("holds" if N[changed] > 128 else "undecided")
    assert outcomes(other) == outcomes(usual)
    absolute, share = TOLERANCE[changed]
    torch.testing.assert_close(losses(other), losses(usual), atol=absolute, rtol=share)
    assert changed == "2 threads" or not torch.equal(losses(other), losses(usual))

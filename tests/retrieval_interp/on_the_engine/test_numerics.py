"""Numbers mean the same in every precision and with any number of threads."""

import pytest
import torch

from circuits import validate
from retrieval_interp import load

N = {"bfloat16": 128, "2 threads": 32}  # examples
# By how much a loss of this small model may differ from that in fp32: absolutely, and as a share of it.
TOLERANCE = {"bfloat16": (2e-3, 0.02), "2 threads": (1e-6, 1e-5)}


def report(changed, n_examples):
    model, task, circuit = load("induction")
    if changed == "bfloat16":
        model.to(torch.bfloat16, print_details=False)
    torch.set_num_threads(2 if changed == "2 threads" else 1)
    try:
        return validate(model, task, circuit, n_examples=n_examples, seed=1, threshold=0.1)
    finally:
        torch.set_num_threads(1)


def losses(report):
    """The mean of every loss in a report: unablated, combined, of each head, and without each path."""
    each = [loss.mean for one in (*report.heads, *report.paths) for loss in one.losses.values()]
    return torch.tensor([report.unablated.mean, report.combined.mean, *each])


def outcomes(report):
    """All decisions of a report: verdicts, the simplest mechanisms of heads, and which paths are needed."""
    verdicts = [(verdict.name, verdict.decision) for verdict in report.verdicts]
    heads = [(head.simplest, head.decision) for head in report.heads]
    return verdicts, heads, [(path.needed, path.alternative_targets) for path in report.paths], report.decision


@pytest.mark.slow
@pytest.mark.parametrize("changed", N)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(changed):
    usual, other = report("nothing", N[changed]), report(changed, N[changed])
    assert other.decision == "holds"
    assert outcomes(other) == outcomes(usual)
    absolute, share = TOLERANCE[changed]
    torch.testing.assert_close(losses(other), losses(usual), atol=absolute, rtol=share)
    assert changed == "2 threads" or not torch.equal(losses(other), losses(usual))

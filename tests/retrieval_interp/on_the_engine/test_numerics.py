"""Numbers mean the same in every precision, with any number of threads, and however many examples run at once."""

from dataclasses import dataclass

import pytest
import torch

from circuits import validate
from circuits.losses import sequential_test
from circuits.model import transformer
from retrieval_interp import load

FEW = 128
# By how much a loss of this small model may differ from that in fp32: absolutely, and as a share of it.
TOLERANCE = {"bfloat16": (2e-3, 0.02), "2 threads": (1e-6, 1e-5)}


@dataclass(frozen=True)
class Setting:
    """What is changed: the precision, the number of threads, or how many sequences run at once at most."""

    change: str
    precision: torch.dtype = torch.float32
    threads: int = 1
    at_once: int | None = None
    examples: int = FEW

    @property
    def tolerance(self):
        """How far the root of a loss, a distance between outputs and targets, may be from the usual one."""
        return 1e-5 if self.precision == torch.float32 else 2 * torch.finfo(self.precision).eps


USUAL = Setting("none")
SETTINGS = (
    Setting("bfloat16", precision=torch.bfloat16),
    Setting("2 threads", threads=2, examples=32),
    Setting("batches of 4", at_once=4, examples=32),  # small batches are slow, and few examples test them as well
)


@pytest.fixture
def report(monkeypatch):
    """Validates ``induction`` with a setting; returns the report and the largest number of sequences at once."""
    sizes, each_loss, threads = [0], sequential_test.each_loss, torch.get_num_threads()

    def counted(*given):
        for index, part, losses in each_loss(*given):
            sizes.append(len(losses))
            yield index, part, losses

    def made(setting, threshold=0.1):
        model, task, circuit = load("induction")
        model.to(setting.precision, print_details=False)
        torch.set_num_threads(setting.threads)
        with monkeypatch.context() as patched:
            patched.setattr(sequential_test, "each_loss", counted)
            if setting.at_once:
                n_positions = task.examples(1, 1).inputs.shape[1]
                patched.setattr(transformer, "POSITIONS_AT_ONCE", setting.at_once * n_positions)
            sizes[:] = [0]
            found = validate(model, task, circuit, n_examples=setting.examples, seed=1, threshold=threshold)
        return found, max(sizes)

    yield made
    torch.set_num_threads(threads)


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
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.change)
def test_no_setting_changes_a_verdict_and_hardly_a_loss(report, setting):
    usual, _ = report(Setting("none", examples=setting.examples))
    found, at_once = report(setting)
    assert found.decision == "holds"
    assert outcomes(found) == outcomes(usual)
    assert (losses(found).sqrt() - losses(usual).sqrt()).abs().max() <= setting.tolerance
    absolute, share = TOLERANCE.get(setting.change, (1e-5, 1e-4))
    torch.testing.assert_close(losses(found), losses(usual), atol=absolute, rtol=share)
    assert at_once <= (setting.at_once or at_once)
    if setting.precision != torch.float32:
        assert not torch.equal(losses(found), losses(usual))

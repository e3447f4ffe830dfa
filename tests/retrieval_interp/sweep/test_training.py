import json
from dataclasses import replace

import pytest
import torch

from circuits.task import Examples
from retrieval_interp.models.build import build
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Trained
from retrieval_interp.sweep.training import train_run
from retrieval_interp.training.training_step import TrainingStep
from tests.sweeps import MICRO

pytestmark = pytest.mark.usefixtures("micro_presets")


@pytest.mark.slow
def test_a_job_leaves_a_log_and_a_result() -> None:
    shares: list[float] = []
    outcome = train_run(Job(Run("micro", 4), MICRO), shares.append, "cpu", True)
    assert shares[-1] == 1.0
    assert isinstance(outcome, Trained)
    assert outcome.result.run == Run("micro", 4)
    records = [json.loads(line) for line in outcome.log.splitlines()]
    assert [record["step"] for record in records] == [20, 40, 60]
    assert outcome.weights is not None
    model = build(MICRO.task, MICRO.config, 0)
    model.load_state_dict(dict(outcome.weights))
    examples = MICRO.task.examples(512, 0)
    with torch.no_grad():
        losses = MICRO.task.losses(model(examples.inputs), examples).mean(dim=0)
    # The mean over the last steps is not that of the last weights, but near.
    assert outcome.result.loss == pytest.approx(losses.mean().item(), abs=0.1)


@pytest.mark.slow
def test_a_run_that_diverges_is_a_failure_and_says_when(monkeypatch: pytest.MonkeyPatch) -> None:
    step, steps = TrainingStep.__call__, []

    def spoiled(self: TrainingStep, examples: Examples, lr: float) -> torch.Tensor:
        steps.append(lr)
        losses = step(self, examples, lr)
        return losses * torch.nan if len(steps) == 25 else losses

    monkeypatch.setattr(TrainingStep, "__call__", spoiled)
    failed = train_run(Job(Run("micro", 1), MICRO), lambda share: None, "cpu", False)
    assert failed == Failure(Run("micro", 1), "the loss became NaN or infinite by step 40")


def test_the_log_has_six_significant_digits_of_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingStep, "__call__", lambda self, examples, lr: torch.tensor([1 / 3, 200 / 3]))
    outcome = train_run(Job(Run("micro", 0), MICRO), lambda share: None, "cpu", False)
    assert isinstance(outcome, Trained)
    for record in map(json.loads, outcome.log.splitlines()):
        assert record["components"] == {"x1": 0.333333, "x2": 66.6667}
        assert record["loss"] == 33.5
        assert record["lr"] == float(f"{record['lr']:.6g}")
    assert outcome.result.fell == {"x1": 20, "x2": None}


def test_a_task_that_grows_has_not_fallen_before_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = replace(MICRO.task, implicit_curriculum=False)
    growing = replace(MICRO, task=alone, recipe=replace(MICRO.recipe, growing=True))
    monkeypatch.setattr(TrainingStep, "__call__", lambda self, examples, lr: torch.zeros(1))
    outcome = train_run(Job(Run("growing", 0), growing), lambda share: None, "cpu", False)
    assert isinstance(outcome, Trained)
    assert outcome.result.fell == {"x2": 60}  # two hops from step 30 of 60 on: the first 20 steps that are whole

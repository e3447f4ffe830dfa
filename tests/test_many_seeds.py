import json
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.func import vmap

from retrieval_interp import training_step
from retrieval_interp.model import build
from retrieval_interp.sweep import many_seeds
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.many_seeds import Forward, ManySeeds, taking_turns
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Trained
from retrieval_interp.sweep.training import train_seeds
from retrieval_interp.training_step import Batches, TrainingStep, learning_rate
from tests.sweeps import MICRO

pytestmark = pytest.mark.usefixtures("micro_presets")

CPU = torch.device("cpu")


# Measured: single precision differs by at most 2e-7 after one step and 6e-6 after 60; bf16 by up to 2e-3.
@pytest.mark.slow
@pytest.mark.parametrize("forward", [taking_turns, vmap])  # as on a CPU, and as on a GPU
def test_seeds_trained_together_learn_what_they_learn_alone(
    forward: Callable[[Forward], Forward], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_seeds, "taking_turns", forward)
    monkeypatch.setattr(training_step, "has_fast_bfloat16", lambda device: False)
    seeds = (3, 0, 7)
    many = ManySeeds(MICRO, seeds, CPU)
    together = torch.stack([many.step(step) for step in range(MICRO.recipe.steps)])
    for place, seed in enumerate(seeds):
        model = build(MICRO.task, MICRO.config, seed)
        take, batches = TrainingStep(model, MICRO.task, MICRO.recipe), Batches(MICRO.task, MICRO.recipe, seed, CPU)
        steps = range(MICRO.recipe.steps)
        alone = torch.stack([take(batches[step], learning_rate(MICRO.recipe, step)) for step in steps])
        torch.testing.assert_close(together[:, place], alone, atol=1e-4, rtol=0)
        examples = MICRO.task.examples(32, 0)
        model.load_state_dict(many.state(place))
        own = MICRO.task.losses(model(examples.inputs), examples).mean(dim=0)
        torch.testing.assert_close(many.losses(examples)[place], own, atol=1e-5, rtol=0)


def test_a_model_that_diverges_spoils_none_of_the_others() -> None:
    many, alone = ManySeeds(MICRO, (0, 1), CPU), ManySeeds(MICRO, (1,), CPU)
    with torch.no_grad():
        many.weights["unembed.b_U"][0] = torch.inf
    for step in range(3):
        first, second = many.step(step)
        assert not first.isfinite().any()
        torch.testing.assert_close(second, alone.step(step)[0], atol=1e-2, rtol=0)


@pytest.mark.slow
def test_a_job_leaves_a_log_and_a_result_for_every_seed() -> None:
    shares: list[float] = []
    outcomes = train_seeds(Job("micro", (4, 2), MICRO), shares.append, "cpu", True)
    assert shares[-1] == 1.0
    for outcome, seed in zip(outcomes, (4, 2), strict=True):
        assert isinstance(outcome, Trained)
        assert outcome.result.run == Run("micro", seed)
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
    step = ManySeeds.step

    def spoiled(self: ManySeeds, number: int) -> torch.Tensor:
        parts = step(self, number)
        parts[1] = torch.nan if number == 25 else parts[1]
        return parts

    monkeypatch.setattr(ManySeeds, "step", spoiled)
    first, second = train_seeds(Job("micro", (0, 1), MICRO), lambda share: None, "cpu", False)
    assert isinstance(first, Trained)
    assert second == Failure(Run("micro", 1), "the loss became NaN or infinite by step 40")


def test_a_task_that_grows_has_not_fallen_before_it_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = replace(MICRO.task, implicit_curriculum=False)
    growing = replace(MICRO, task=alone, recipe=replace(MICRO.recipe, growing=True))

    def learned(self: ManySeeds, number: int) -> torch.Tensor:
        return torch.zeros(len(self.seeds), 1)

    monkeypatch.setattr(ManySeeds, "step", learned)
    (outcome,) = train_seeds(Job("growing", (0,), growing), lambda share: None, "cpu", False)
    assert isinstance(outcome, Trained)
    assert outcome.result.fell == {"x2": 60}  # two hops from step 30 of 60 on: the first 20 steps that are whole

"""A job of a sweep: some seeds of a preset trained together, with a log and a result for each."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from retrieval_interp.presets import Preset
from retrieval_interp.sweep.many_seeds import ManySeeds
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Result, Trained
from retrieval_interp.training import LOG_EVERY, VALIDATION_EXAMPLES
from retrieval_interp.training_step import choose_device, learning_rate

LAST = 100  # steps at the end over which the validation loss is averaged (paper, section 7.1)
VALIDATE_EVERY = 10  # of these
LEARNED = 0.5  # a partial loss below it (paper, section 7.2)


@dataclass(frozen=True)
class Job:
    """Seeds of one preset that are trained together.

    Attributes:
        preset: its name.
        seeds: of weights and data.
        chosen: the preset itself, so that a worker elsewhere need not know its name.
    """

    preset: str
    seeds: tuple[int, ...]
    chosen: Preset

    @property
    def runs(self) -> tuple[Run, ...]:
        """What it trains."""
        return tuple(Run(self.preset, seed) for seed in self.seeds)

    @property
    def work(self) -> float:
        """How much it is, to compare jobs."""
        chosen = self.chosen
        each = chosen.recipe.steps * chosen.recipe.batch * chosen.task.n_positions * chosen.architecture.n_layers
        return float(len(self.seeds) * each)


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing, and why."""

    run: Run
    reason: str


def attempt(job: Job, device: str, weights: bool, progress: Callable[[float], None]) -> list[Trained | Failure]:
    """``train_seeds``; whatever stops a job is the failure of its runs, and the others go on."""
    try:
        return train_seeds(job, device, weights, progress)
    except Exception as error:
        return [Failure(run, reason_of(error)) for run in job.runs]


def reason_of(error: Exception) -> str:
    """An error in one line."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def train_seeds(
    job: Job, device: str, weights: bool, progress: Callable[[float], None] = lambda share: None
) -> list[Trained | Failure]:
    """Train the seeds of a job; a model that diverges spoils none of the others.

    Args:
        job: what to train.
        device: as ``choose_device`` takes it.
        weights: whether to keep them.
        progress: is told the finished share, 0 to 1.
    """
    chosen, started = job.chosen, time.perf_counter()
    task, recipe = chosen.task, chosen.recipe
    many = ManySeeds(chosen, job.seeds, choose_device(device))
    many.compile()
    validation = task.examples(VALIDATION_EXAMPLES, 0).to(many.device)
    logs: list[list[str]] = [[] for _ in job.seeds]
    fell: list[dict[str, int | None]] = [dict.fromkeys(task.parts) for _ in job.seeds]
    diverged: dict[int, int] = {}
    since = validated = torch.zeros(len(job.seeds), len(task.parts), device=many.device)
    n_validated = 0
    for step in range(1, recipe.steps + 1):
        since = since + many.step(step - 1)
        if recipe.steps - step < LAST and (recipe.steps - step) % VALIDATE_EVERY == 0:
            validated, n_validated = validated + many.losses(validation), n_validated + 1
        if step % LOG_EVERY == 0 or step == recipe.steps:
            means = (since / (step % LOG_EVERY or LOG_EVERY)).cpu()
            for place, parts in enumerate(means.tolist()):
                named = dict(zip(task.parts, parts, strict=True))
                record = {"step": step, "loss": sum(parts) / len(parts), "parts": named}
                logs[place].append(json.dumps({**record, "lr": learning_rate(recipe, step - 1)}))
                for part, loss in named.items():
                    if loss < LEARNED and fell[place][part] is None:
                        fell[place][part] = step
                if not means[place].isfinite().all():
                    diverged.setdefault(place, step)
            if len(diverged) == len(job.seeds):
                break
            since = torch.zeros_like(since)
            progress(step / recipe.steps)
    seconds = round((time.perf_counter() - started) / len(job.seeds), 1)
    losses = [dict(zip(task.parts, row, strict=True)) for row in (validated / max(1, n_validated)).tolist()]
    return [
        Failure(run, f"the loss became NaN or infinite by step {diverged[place]}")
        if place in diverged
        else Trained(
            Result(job.preset, run.seed, losses[place], fell[place], seconds, str(many.device)),
            "\n".join(logs[place]) + "\n",
            many.state(place) if weights else None,
        )
        for place, run in enumerate(job.runs)
    ]

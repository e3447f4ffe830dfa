"""Training the seeds of a job together, with a log and a result for each."""

import json
import time
from collections.abc import Callable

import torch

from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.many_seeds import ManySeeds
from retrieval_interp.sweep.store import LEARNED, Result, Trained
from retrieval_interp.training import LOG_EVERY, VALIDATION_EXAMPLES
from retrieval_interp.training_step import choose_device, learning_rate

LAST = 100  # steps at the end over which the validation loss is averaged (paper, section 7.1)
VALIDATE_EVERY = 10  # of these


def train_seeds(job: Job, progress: Callable[[float], None], device: str, weights: bool) -> list[Trained | Failure]:
    """Train the seeds of a job; a model that diverges spoils none of the others.

    Args:
        job: what to train.
        progress: is told the finished share, 0 to 1.
        device: as ``choose_device`` takes it.
        weights: whether to keep them.
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
                for part, loss in named.items() if many.grown(step - LOG_EVERY) else ():
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

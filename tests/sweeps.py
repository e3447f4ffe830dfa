"""What the tests of sweeps share: a preset that is trained in a second, and runs that never were."""

from collections.abc import Iterable, Iterator

import torch

from retrieval_interp import RetrievalTask
from retrieval_interp.models import presets
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.run import JobProgress
from retrieval_interp.sweep.store import Result, Trained

MICRO = Preset(
    RetrievalTask(2, n_chains=2),
    Architecture(2, 2, d_model=16, d_head=8),
    Recipe(steps=60, batch=16, training_examples=256, lr=2e-3, warmup=10),
)


def trained(run: Run, loss: float = 0.1) -> Trained:
    """What a run that was never made could have come to."""
    parts = presets.preset(run.preset).task.loss_components
    result = Result(run.preset, run.seed, dict.fromkeys(parts, loss), dict.fromkeys(parts, 20), 1.0, "cpu")
    return Trained(result, '{"step": 20}\n', {"W": torch.ones(2)})


def instant(jobs: Iterable[Job], progress: JobProgress) -> Iterator[tuple[Job, Trained | Failure]]:
    """An engine that needs no time."""
    for job in jobs:
        yield job, trained(job.run)

"""A job of a sweep: one run, worked on here or on a worker elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from circuits.errors import BadInput
from retrieval_interp.models.presets import Preset
from retrieval_interp.sweep.plan import Run

Outcome = TypeVar("Outcome")  # what comes of a run: it is trained, or its circuit is found


@dataclass(frozen=True)
class Job:
    """A run to work on.

    Attributes:
        run: which.
        chosen: its preset, so that a worker elsewhere need not know its name.
    """

    run: Run
    chosen: Preset

    @property
    def work(self) -> float:
        """How much it is, to compare jobs."""
        chosen = self.chosen
        positions = chosen.recipe.steps * chosen.recipe.batch * chosen.task.n_positions
        return float(positions * chosen.architecture.n_layers)


@dataclass(frozen=True)
class Failure:
    """A run that came to nothing, and why."""

    run: Run
    reason: str


Work = Callable[[Job, Callable[[float], None]], Outcome | Failure]  # is given the job, and what to tell its share


def attempt(job: Job, progress: Callable[[float], None], work: Work[Outcome]) -> Outcome | Failure:
    """Do a job; whatever stops it is its failure, and the others go on."""
    try:
        return work(job, progress)
    except Exception as error:
        return Failure(job.run, reason_of(error))


def reason_of(error: Exception) -> str:
    """An error in one line; what a person can mend without its class."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, BadInput) else ": ".join(filter(None, (type(error).__name__, lines[0])))

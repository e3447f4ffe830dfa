"""A job of a sweep: one run, done in this process or on a worker."""

from collections.abc import Callable
from dataclasses import dataclass

from circuits.errors import BadInput
from retrieval_interp.models.presets import Preset
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Trained


@dataclass(frozen=True)
class Job:
    """A run to work on.

    Attributes:
        run: the run.
        chosen: the preset of the run; a worker may not have it under its name.
    """

    run: Run
    chosen: Preset

    @property
    def work(self) -> float:
        """The amount of work, in arbitrary units: steps times batch times positions times layers."""
        chosen = self.chosen
        positions = chosen.recipe.steps * chosen.recipe.batch * chosen.task.n_positions
        return float(positions * chosen.architecture.n_layers)


@dataclass(frozen=True)
class Failure:
    """A run that failed, with the reason."""

    run: Run
    reason: str


Work = Callable[[Job, Callable[[float], None]], Trained | Failure]  # arguments: a job, a progress callback


def attempt(job: Job, progress: Callable[[float], None], work: Work) -> Trained | Failure:
    """Do a job, and return every exception as a failure, so that the other jobs continue."""
    try:
        return work(job, progress)
    except Exception as error:
        return Failure(job.run, reason_of(error))


def reason_of(error: Exception) -> str:
    """Return an error in one line, with its class unless it is a BadInput."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, BadInput) else ": ".join(filter(None, (type(error).__name__, lines[0])))

"""A job of a sweep: some seeds of a preset, worked on together, here or on a worker elsewhere."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from circuits.errors import BadInput
from retrieval_interp.presets import Preset
from retrieval_interp.sweep.plan import Run

Outcome = TypeVar("Outcome")  # what comes of a run: it is trained, or its circuit is found


@dataclass(frozen=True)
class Job:
    """Seeds of one preset that are worked on together.

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
        """Whose job it is."""
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


Work = Callable[[Job, Callable[[float], None]], list[Outcome | Failure]]  # is given the job, and what to tell its share


def attempt(job: Job, progress: Callable[[float], None], work: Work[Outcome]) -> list[Outcome | Failure]:
    """Do a job; whatever stops it is the failure of its runs, and the others go on."""
    try:
        return work(job, progress)
    except Exception as error:
        return [Failure(run, reason_of(error)) for run in job.runs]


def reason_of(error: Exception) -> str:
    """An error in one line; what a person can mend without its class."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, BadInput) else ": ".join(filter(None, (type(error).__name__, lines[0])))

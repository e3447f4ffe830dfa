"""Running a sweep: what is missing is claimed, made, and kept; what fails is tried again, but not for ever."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol, TypeVar, runtime_checkable

from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.job import Failure, Job, Outcome
from retrieval_interp.sweep.plan import Run

TRIES = 3  # of a run that fails, in one sweep
POLL = 1.0  # seconds between two looks at runs that another sweep is making

Told = Callable[[Job, float], None]
Engine = Callable[[Iterable[Job], Told], Iterator[tuple[Job, Outcome | Failure]]]
Kept = TypeVar("Kept", contravariant=True)


@runtime_checkable
class Shelf(Protocol[Kept]):
    """Where what comes of runs is kept."""

    def has(self, run: Run) -> bool:
        """Whether a run's is there."""

    def claimed(self, run: Run) -> AbstractContextManager[bool]:
        """Whether a run is missing and nobody else is making it; then nobody else will until this ends."""

    def add(self, outcome: Kept) -> None:
        """Keep what came of a run, which is claimed."""

    def failed(self, run: Run, reason: str) -> None:
        """Write down that a run failed, and why."""


def sweep(
    runs: Sequence[Run],
    store: Shelf[Outcome],
    engine: Engine[Outcome],
    progress: Callable[[float], None],
) -> list[Failure]:
    """Make everything that the store does not hold, and wait for what another sweep is making.

    Args:
        runs: whose outcomes are wanted.
        store: where they are kept.
        engine: what does jobs; it takes them one after the other, when it has room for them.
        progress: is told the finished share of the whole, 0 to 1.

    Returns:
        the last failure of every run that is still missing.

    Raises:
        BadInput: a run cannot be kept.
    """
    failures: Counter[Run] = Counter()
    last: dict[Run, Failure] = {}
    whole = _work(runs)

    def done() -> float:
        return _work(run for run in runs if store.has(run)) / whole

    progress(done())
    while True:
        missing = [run for run in runs if not store.has(run) and failures[run] < TRIES]
        if not missing:
            return [failure for run, failure in last.items() if not store.has(run)]
        claims = Claims(store, missing)
        running: dict[Job, float] = {}

        def told(job: Job, share: float, running: dict[Job, float] = running) -> None:
            running[job] = share
            begun = sum(job.work * share for job, share in running.items())
            progress(min(1.0, done() + begun / whole))

        with claims:
            for job, outcome in engine(claims.jobs(), told):
                if isinstance(outcome, Failure):
                    failures[outcome.run] += 1
                    last[outcome.run] = outcome
                    store.failed(outcome.run, outcome.reason)
                else:
                    store.add(outcome)
                running.pop(job, None)
                claims.release(job)
                progress(done())
        if not claims.any:
            time.sleep(POLL)


class Claims:
    """Jobs that nobody else is at, claimed when they are taken and until they are released."""

    def __init__(self, store: Shelf[Any], missing: list[Run]) -> None:
        self._store, self._missing = store, missing
        self._held: dict[Job, ExitStack] = {}
        self.any = False

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_: object) -> None:
        for job in [*self._held]:
            self.release(job)

    def jobs(self) -> Iterator[Job]:
        """One after the other."""
        for run in self._missing:
            stack = ExitStack()
            if not stack.enter_context(self._store.claimed(run)):
                stack.close()
                continue
            job = Job(run, preset(run.preset))
            self._held[job], self.any = stack, True
            yield job

    def release(self, job: Job) -> None:
        """Let others claim what was not finished."""
        self._held.pop(job).close()


def _work(runs: Iterable[Run]) -> float:
    return math.fsum(Job(run, preset(run.preset)).work for run in runs)

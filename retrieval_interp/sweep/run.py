"""Running a sweep: claim each missing run, do its job and save the outcome; try failed runs again, a few times."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack

from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Store, Trained

TRIES = 3  # most attempts at a run in one sweep
POLL = 1.0  # seconds between two checks for runs that another sweep is making

JobProgress = Callable[[Job, float], None]  # arguments: a running job, its finished share
Engine = Callable[[Iterable[Job], JobProgress], Iterator[tuple[Job, Trained | Failure]]]


def sweep(
    runs: Sequence[Run],
    store: Store,
    engine: Engine,
    progress: Callable[[float], None],
) -> list[Failure]:
    """Train every run that the store lacks, and wait for those that other sweeps are training.

    Args:
        runs: the runs that are wanted.
        store: the store of the runs.
        engine: does the jobs; it takes a job when it has room for it.
        progress: is called with the finished share of the sweep, 0 to 1.

    Returns:
        the last failure of every run that is still missing.

    Raises:
        BadInput: a run cannot be saved.
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

        def job_progress(job: Job, share: float, running: dict[Job, float] = running) -> None:
            running[job] = share
            unfinished = sum(job.work * share for job, share in running.items())
            progress(min(1.0, done() + unfinished / whole))

        with claims:
            for job, outcome in engine(claims.jobs(), job_progress):
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
    """The jobs that no other process has claimed; each is claimed when it is taken, until it is released.

    Attributes:
        any: whether a job was claimed.
    """

    def __init__(self, store: Store, missing: list[Run]) -> None:
        self._store, self._missing = store, missing
        self._held: dict[Job, ExitStack] = {}
        self.any = False

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_: object) -> None:
        for job in [*self._held]:
            self.release(job)

    def jobs(self) -> Iterator[Job]:
        """Claim and yield one job after another."""
        for run in self._missing:
            stack = ExitStack()
            if not stack.enter_context(self._store.claimed(run)):
                stack.close()
                continue
            job = Job(run, preset(run.preset))
            self._held[job], self.any = stack, True
            yield job

    def release(self, job: Job) -> None:
        """Release the claim on a job."""
        self._held.pop(job).close()


def _work(runs: Iterable[Run]) -> float:
    return math.fsum(Job(run, preset(run.preset)).work for run in runs)

"""Running a sweep: what is missing is claimed, trained, and kept; what fails is tried again, but not for ever."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from retrieval_interp.presets import preset
from retrieval_interp.sweep.plan import Plan, Run
from retrieval_interp.sweep.store import Store
from retrieval_interp.sweep.training import Failure, Job, Trained

TRIES = 3  # of a run that fails, in one sweep
TOGETHER = 8  # seeds trained as one program
POLL = 1.0  # seconds between two looks at runs that another sweep is making

Told = Callable[[Job, float], None]
Engine = Callable[[Iterable[Job], Told], Iterator[tuple[Job, list[Trained | Failure]]]]


def sweep(plan: Plan, store: Store, engine: Engine, progress: Callable[[float], None]) -> list[Failure]:
    """Make every run of a plan that the store does not hold, and wait for those that another sweep is making.

    Args:
        plan: what to train.
        store: where the runs are kept.
        engine: what trains jobs; it takes them one after the other, when it has room for them.
        progress: is told the finished share of the whole plan, 0 to 1.

    Returns:
        the last failure of every run that is still missing.

    Raises:
        BadInput: a run cannot be kept.
    """
    failures: Counter[Run] = Counter()
    last: dict[Run, Failure] = {}
    whole = _work(plan.runs)

    def done() -> float:
        return _work(run for run in plan.runs if store.has(run)) / whole

    progress(done())
    while True:
        missing = [run for run in plan.runs if not store.has(run) and failures[run] < TRIES]
        if not missing:
            return [failure for run, failure in last.items() if not store.has(run)]
        claims = Claims(store, missing)
        running: dict[Job, float] = {}

        def told(job: Job, share: float, running: dict[Job, float] = running) -> None:
            running[job] = share
            begun = sum(job.work * share for job, share in running.items())
            progress(min(1.0, done() + begun / whole))

        with claims:
            for job, outcomes in engine(claims.jobs(), told):
                for outcome in outcomes:
                    if isinstance(outcome, Trained):
                        store.add(outcome)
                    else:
                        failures[outcome.run] += 1
                        last[outcome.run] = outcome
                        store.failed(outcome.run, outcome.reason)
                running.pop(job, None)
                claims.release(job)
                progress(done())
        if not claims.any:
            time.sleep(POLL)


class Claims:
    """Jobs of runs that nobody else is making, claimed when they are taken and until they are released."""

    def __init__(self, store: Store, missing: list[Run]) -> None:
        """``missing`` is what is wanted."""
        self._store, self._missing = store, missing
        self._held: dict[Job, ExitStack] = {}
        self.any = False

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_: object) -> None:
        for job in [*self._held]:
            self.release(job)

    def jobs(self) -> Iterator[Job]:
        """One after the other; the seeds of a preset together."""
        for name in dict.fromkeys(run.preset for run in self._missing):
            own = [run for run in self._missing if run.preset == name]
            for start in range(0, len(own), TOGETHER):
                stack = ExitStack()
                ours = stack.enter_context(self._store.claimed(own[start : start + TOGETHER]))
                if not ours:
                    stack.close()
                    continue
                job = Job(name, tuple(run.seed for run in ours), preset(name))
                self._held[job], self.any = stack, True
                yield job

    def release(self, job: Job) -> None:
        """Let others claim what was not finished."""
        self._held.pop(job).close()


def _work(runs: Iterable[Run]) -> float:
    return math.fsum(Job(run.preset, (run.seed,), preset(run.preset)).work for run in runs)

"""A sweep on this machine: one job after the other."""

from collections.abc import Callable, Iterable, Iterator

from retrieval_interp.sweep.job import Failure, Job, Outcome, Work, attempt


def local(
    jobs: Iterable[Job], told: Callable[[Job, float], None], work: Work[Outcome]
) -> Iterator[tuple[Job, Outcome | Failure]]:
    """Every job with what came of it; jobs are taken only when they begin."""
    for job in jobs:
        yield job, attempt(job, lambda share, job=job: told(job, share), work)  # type: ignore[misc]

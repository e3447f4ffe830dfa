"""The engine for this machine: one job after another."""

from collections.abc import Callable, Iterable, Iterator

from retrieval_interp.sweep.job import Failure, Job, Work, attempt
from retrieval_interp.sweep.store import Trained


def local(
    jobs: Iterable[Job], progress: Callable[[Job, float], None], work: Work
) -> Iterator[tuple[Job, Trained | Failure]]:
    """Do the jobs, and yield each with its outcome; a job is taken only when it starts."""
    for job in jobs:
        yield job, attempt(job, lambda share, job=job: progress(job, share), work)  # type: ignore[misc]

"""A sweep on this machine: one job after the other."""

from collections.abc import Callable, Iterable, Iterator

from retrieval_interp.sweep.training import Failure, Job, Trained, attempt


def local(
    jobs: Iterable[Job], told: Callable[[Job, float], None], device: str, weights: bool
) -> Iterator[tuple[Job, list[Trained | Failure]]]:
    """Every job with what came of it; jobs are taken only when they begin."""
    for job in jobs:
        yield job, attempt(job, device, weights, lambda share, job=job: told(job, share))  # type: ignore[misc]

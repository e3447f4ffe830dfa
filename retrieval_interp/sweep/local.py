"""A sweep on this machine: one job after the other."""

from collections.abc import Callable, Iterable, Iterator

from retrieval_interp.sweep.training import Failure, Job, Trained, train_seeds


def local(
    jobs: Iterable[Job], device: str, weights: bool, told: Callable[[Job, float], None]
) -> Iterator[tuple[Job, list[Trained | Failure]]]:
    """Every job with what came of it; jobs are taken only when they begin."""
    for job in jobs:
        try:
            done = train_seeds(job, device, weights, lambda share, job=job: told(job, share))  # type: ignore[misc]
        except Exception as error:  # whatever stops one job, the others go on
            reason = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            done = [Failure(run, reason) for run in job.runs]
        yield job, done

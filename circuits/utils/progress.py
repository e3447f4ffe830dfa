"""Progress of long computations, as the finished share."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float], None]  # is called with the finished share, 0 to 1
DELAY = 2.0  # seconds before a bar is shown; shorter computations have none


@contextmanager
def shown(progress: Progress | None, what: str) -> Iterator[Progress]:
    """Yield ``progress``, or if it is None, a progress bar in a notebook or a terminal, and no output elsewhere."""
    if progress is not None:
        yield progress
        return
    from tqdm.auto import tqdm

    silent = "ipykernel" not in sys.modules and not sys.stderr.isatty()
    with tqdm(total=100, desc=what, unit="%", delay=DELAY, disable=silent, leave=False) as bar:

        def update(share: float) -> None:
            bar.update(round(100 * share) - bar.n)

        yield update


def part_of(progress: Progress, first: float, last: float) -> Progress:
    """Return a progress function for a part of the work, from one share of the whole to another."""
    return lambda share: progress(first + (last - first) * share)

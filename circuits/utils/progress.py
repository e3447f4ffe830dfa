"""Progress of long computations, told as the finished share."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Progress = Callable[[float], None]  # is called with the finished share, 0 to 1
DELAY = 2.0  # seconds before a bar is shown: none for what takes no longer


@contextmanager
def shown(progress: Progress | None, what: str) -> Iterator[Progress]:
    """``progress`` itself; without it a bar in a notebook or a terminal, and nothing elsewhere."""
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
    """Progress of a part of the work, from one share of the whole to another."""
    return lambda share: progress(first + (last - first) * share)

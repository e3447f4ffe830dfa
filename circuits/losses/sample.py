"""Fresh examples, drawn block by block: however many there are, only one block is in memory."""

from __future__ import annotations

import hashlib

from circuits.errors import BadInput
from circuits.problem import Examples, Problem
from circuits.roles import Roles
from circuits.utils.lazy import torch

BLOCK = 2**14  # examples
MOST_EXAMPLES = 10**7  # the losses of a small circuit on them fill a GiB


class Sample:
    """``n`` fresh examples of a problem; the first ``BLOCK`` are those that ``problem.examples`` gives.

    Every block after the first has a seed of its own, which follows from that of the sample.
    """

    def __init__(self, problem: Problem, n: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.problem, self.seed, self.device, self._n = problem, seed, device, n
        self._drawn: dict[int, Examples] = {0: self._draw(0)}

    def __len__(self) -> int:
        return self._n

    @property
    def first(self) -> Examples:
        """The first block."""
        return self._drawn[0]

    @property
    def roles(self) -> Roles:
        """Of the first block."""
        return self.first.roles

    def take(self, index: slice) -> Examples:
        """Some of the examples, all of one block."""
        start, stop, _ = index.indices(self._n)
        block = start // BLOCK
        if block not in self._drawn:
            self._drawn = {0: self.first, block: self._draw(block)}
        return self._drawn[block].take(slice(start - block * BLOCK, stop - block * BLOCK))

    def _draw(self, block: int) -> Examples:
        n = min(BLOCK, self._n - block * BLOCK)
        return self.problem.examples(n, self._seed(block)).to(self.device)

    def _seed(self, block: int) -> int:
        if block == 0:
            return self.seed
        return stream_seed(self.seed, str(block))


def stream_seed(seed: int, stream: str) -> int:
    """A seed that follows from another one: what is drawn with it has nothing to do with what the other draws."""
    return int(hashlib.sha256(f"{seed}, {stream}".encode()).hexdigest()[:8], 16)


def check_number(n: int) -> None:
    """Refuse a number of examples that is too small for a standard error, or larger than can be kept in mind.

    Raises:
        BadInput: it is.
    """
    if not 2 <= n <= MOST_EXAMPLES:
        raise BadInput(f"{n} examples; expected at least 2, for a standard error, and at most {MOST_EXAMPLES}")


def blocks(start: int, stop: int) -> list[slice]:
    """From one example to another, cut where a block ends."""
    ends = [*range((start // BLOCK + 1) * BLOCK, stop, BLOCK), stop]
    return [slice(a, b) for a, b in zip([start, *ends[:-1]], ends, strict=True)] if start < stop else []

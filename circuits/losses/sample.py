"""Fresh examples, drawn block by block, so that memory is bounded."""

from __future__ import annotations

from dataclasses import replace

from circuits.given import examples_of, number_of_examples, stream_seed
from circuits.roles import Roles
from circuits.task import Examples, Task
from circuits.utils.lazy import torch

BLOCK = 2**14  # examples


class Sample:
    """``n`` fresh examples of a task; the first ``BLOCK`` of them equal those of ``task.examples``.

    Every later block has its own seed, derived from the seed of the sample. Where the task gives no counterfactual
    inputs, they are those of as many other examples, from a stream of their own, unless there is padding.

    Raises:
        BadInput: the number of examples is out of range, or as ``examples_of``.
    """

    def __init__(self, task: Task, n: int, seed: int, device: torch.device | str = "cpu") -> None:
        self.task, self.seed, self.device, self._n = task, seed, device, number_of_examples(n)
        self.first = self._draw(0)
        self._later: tuple[int, Examples] = 0, self.first  # the last block that was drawn

    def __len__(self) -> int:
        return self._n

    @property
    def roles(self) -> Roles:
        """The roles of the first block."""
        return self.first.roles

    def take(self, index: slice) -> Examples:
        """Return a slice of the examples; it must lie in one block."""
        start, stop, _ = index.indices(self._n)
        block = start // BLOCK
        if block not in (0, self._later[0]):
            self._later = block, self._draw(block)
        examples = self._later[1] if block else self.first
        return examples.take(slice(start - block * BLOCK, stop - block * BLOCK))

    def _draw(self, block: int) -> Examples:
        seed = stream_seed(self.seed, str(block)) if block else self.seed
        drawn = examples_of(self.task, min(BLOCK, self._n - block * BLOCK), seed, self.device)
        if drawn.counterfactual is None and drawn.roles.valid is None and len(drawn) > 1:
            others = examples_of(self.task, len(drawn), stream_seed(seed, "others"), self.device)
            return replace(drawn, counterfactual=others.inputs)
        return drawn


def blocks(start: int, stop: int) -> list[slice]:
    """Return the slices from one example to another, cut at the ends of blocks."""
    ends = [*range((start // BLOCK + 1) * BLOCK, stop, BLOCK), stop]
    return [slice(a, b) for a, b in zip([start, *ends[:-1]], ends, strict=True)] if start < stop else []

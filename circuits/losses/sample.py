"""Fresh examples, drawn block by block, so that memory is bounded."""

from __future__ import annotations

from dataclasses import replace

from circuits.given import examples_of, number_of_examples, stream_seed
from circuits.roles import Roles
from circuits.split import Part
from circuits.task import Examples, Task
from circuits.utils.lazy import torch

BLOCK = 2**14  # examples


class Sample:
    """``n`` fresh examples of a task; the first ``BLOCK`` of them equal those of ``task.examples``.

    Every later block has its own seed, derived from that of the sample; a part of a data set is one block, with its own
    counterfactual inputs (split.py). Where another task gives none, they are those of as many other examples, from a
    stream of their own. With padding there are none.

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
        if isinstance(self.task, Part):
            return self.first.take(index)
        block = start // BLOCK
        if block not in (0, self._later[0]):
            self._later = block, self._draw(block)
        examples = self._later[1] if block else self.first
        return examples.take(slice(start - block * BLOCK, stop - block * BLOCK))

    def _draw(self, block: int) -> Examples:
        n = self._n if isinstance(self.task, Part) else min(BLOCK, self._n - block * BLOCK)
        seed = stream_seed(self.seed, str(block)) if block else self.seed
        drawn = examples_of(self.task, n, seed, self.device)
        if drawn.counterfactual is not None or drawn.roles.valid is not None or isinstance(self.task, Part):
            return drawn
        others = examples_of(self.task, n, stream_seed(seed, "others"), self.device)
        alike = others.roles.valid is None and others.inputs.shape == drawn.inputs.shape
        return replace(drawn, counterfactual=others.inputs) if alike else drawn


def blocks(start: int, stop: int) -> list[slice]:
    """Return the slices from one example to another, cut at the ends of blocks."""
    ends = [*range((start // BLOCK + 1) * BLOCK, stop, BLOCK), stop]
    return [slice(a, b) for a, b in zip([start, *ends[:-1]], ends, strict=True)] if start < stop else []

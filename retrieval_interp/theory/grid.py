"""Computational paths of a causal transformer: the grid of positions by layers.

A2    B2    C2        cell C2 reads A1, B1 and C1: one layer up, and never later positions.
A1    B1    C1        No edge leads from A1 to B1, so that within one pass no path has more than L edges.
A0    B0    C0        With written tokens, what stands at the top of a position becomes the next one's token:
                      an edge from A2 to B0, from where everything goes on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from circuits.errors import BadInput


class Cell(NamedTuple):
    """The residual stream at a position, before any layer (0) or after layer 1, 2, ... L."""

    position: int
    layer: int

    def __str__(self) -> str:
        return f"{_letters(self.position)}{self.layer}"


@dataclass(frozen=True)
class Grid:
    """A causal transformer over a prompt and the tokens that it wrote itself.

    Attributes:
        n_prompt: positions that were given.
        n_layers: L.
        n_written: tokens that were written and read again, one position each.
    """

    n_prompt: int
    n_layers: int
    n_written: int = 0

    def __post_init__(self) -> None:
        if self.n_prompt < 1 or self.n_layers < 1 or self.n_written < 0:
            raise BadInput(f"{self}: expected at least one position and one layer, and no fewer than 0 written tokens")

    @property
    def n_positions(self) -> int:
        """Of the prompt, and of what was written."""
        return self.n_prompt + self.n_written

    def cells(self) -> Iterator[Cell]:
        """All cells, so that each stands after those that it reads."""
        for position in range(self.n_positions):
            for layer in range(self.n_layers + 1):
                yield Cell(position, layer)

    def reads(self, cell: Cell) -> tuple[Cell, ...]:
        """The cells that a cell is computed from in one step.

        Raises:
            BadInput: there is no such cell.
        """
        self._check(cell)
        if cell.layer:
            return tuple(Cell(position, cell.layer - 1) for position in range(cell.position + 1))
        return (Cell(cell.position - 1, self.n_layers),) if cell.position >= self.n_prompt else ()

    def _check(self, *cells: Cell) -> None:
        for cell in cells:
            if not (0 <= cell.position < self.n_positions and 0 <= cell.layer <= self.n_layers):
                size = f"{self.n_positions} positions, and layers 0 to {self.n_layers}"
                raise BadInput(f"{cell} is no cell: there are {size}")

    def n_paths(self, start: Cell, end: Cell) -> int:
        """In how many ways a cell is reached from another; 1 from itself."""
        self._check(start, end)
        ways: dict[Cell, int] = {}
        for cell in self.cells():
            ways[cell] = int(cell == start) + sum(ways[below] for below in self.reads(cell))
        return ways[end]

    def reaches(self, start: Cell, end: Cell) -> bool:
        """Whether any path leads from one cell to another, in closed form.

        Within a pass, if the end is higher and not earlier, or the same cell. Through what was written: from below the
        top a path can go right before it comes there, and so into the first written token or the next one; from the
        top it leads into the next token alone, if that was written.
        """
        self._check(start, end)
        if start == end or (start.position <= end.position and start.layer < end.layer):
            return True
        following = start.position + 1
        if start.layer == self.n_layers and following < self.n_prompt:
            return False
        return max(self.n_prompt, following) <= end.position

    def longest_path(self) -> int:
        """The number of edges of the longest path: L in one pass, however long the prompt, and L + 1 for each token."""
        return self.n_layers + self.n_written * (self.n_layers + 1)

    def longest_path_by_search(self) -> int:
        """The same, found by looking at every cell."""
        longest: dict[Cell, int] = {}
        for cell in self.cells():
            longest[cell] = max((longest[below] + 1 for below in self.reads(cell)), default=0)
        return max(longest.values())


def _letters(position: int) -> str:
    letters = ""
    while position >= 0:
        position, letter = position // 26 - 1, position % 26
        letters = chr(ord("A") + letter) + letters
    return letters

"""Computational paths of a causal transformer, on the grid of positions by layers.

A2    B2    C2        Cell C2 reads A1, B1 and C1: the layer below, up to its own position.
A1    B1    C1        There is no edge from A1 to B1, so a path in one forward pass has at most L edges.
A0    B0    C0        With written tokens, the output at the top of a position becomes the token of the next position:
                      an edge leads from A2 to B0, where a path can go up again.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from circuits.errors import BadInput


class Cell(NamedTuple):
    """The residual stream at a position, before the first layer (0) or after layer 1, 2, ... L."""

    position: int
    layer: int

    def __str__(self) -> str:
        return f"{_letters(self.position)}{self.layer}"


@dataclass(frozen=True)
class Grid:
    """The grid of a causal transformer that reads a prompt and the tokens that it writes.

    Attributes:
        n_prompt: the number of positions of the prompt.
        n_layers: L, the number of layers.
        n_written: the number of tokens that are written and read again, one position each.
    """

    n_prompt: int
    n_layers: int
    n_written: int = 0

    def __post_init__(self) -> None:
        if self.n_prompt < 1 or self.n_layers < 1 or self.n_written < 0:
            raise BadInput(f"{self}: expected at least one position, one layer and 0 written tokens")

    @property
    def n_positions(self) -> int:
        """The number of positions of the prompt and of the written tokens."""
        return self.n_prompt + self.n_written

    def cells(self) -> Iterator[Cell]:
        """Yield all cells, each after the cells that it reads."""
        for position in range(self.n_positions):
            for layer in range(self.n_layers + 1):
                yield Cell(position, layer)

    def reads(self, cell: Cell) -> tuple[Cell, ...]:
        """Return the cells that a cell is directly computed from.

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
                size = f"{self.n_positions} positions and layers 0 to {self.n_layers}"
                raise BadInput(f"cell {cell} does not exist; there are {size}")

    def n_paths(self, start: Cell, end: Cell) -> int:
        """Return the number of paths from one cell to another; 1 from a cell to itself."""
        self._check(start, end)
        ways: dict[Cell, int] = {}
        for cell in self.cells():
            ways[cell] = int(cell == start) + sum(ways[below] for below in self.reads(cell))
        return ways[end]

    def reaches(self, start: Cell, end: Cell) -> bool:
        """Whether a path leads from one cell to another, in closed form.

        Within a pass, there is a path to the same cell and to every higher cell at the same or a later position.
        Through written tokens, a path from below the top can move to later positions before it reaches the top, and so
        enter the first written token or the next token. A path from the top enters only the next token, if that token
        is written.
        """
        self._check(start, end)
        if start == end or (start.position <= end.position and start.layer < end.layer):
            return True
        following = start.position + 1
        if start.layer == self.n_layers and following < self.n_prompt:
            return False
        return max(self.n_prompt, following) <= end.position

    def longest_path(self) -> int:
        """Return the length of the longest path: L edges in one pass of any prompt, L + 1 for each written token."""
        return self.n_layers + self.n_written * (self.n_layers + 1)


def _letters(position: int) -> str:
    letters = ""
    while position >= 0:
        position, letter = position // 26 - 1, position % 26
        letters = chr(ord("A") + letter) + letters
    return letters

"""What the five formulations share: sizes, chance, and questions without end that do not repeat."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import islice
from typing import ClassVar

import numpy as np

from circuits.errors import BadInput, check_size
from retrieval_interp.prompts.question import Question
from retrieval_interp.rng import RngStream

MOST_QUESTIONS = 10**6  # whose prompts, none of them twice, can be kept in mind
TRIES = 1000  # draws that may all be there already before a size is said to have no further question


@dataclass(frozen=True)
class Formulation(ABC):
    """A way to put the retrieval problem into words (paper, section 4).

    Attributes:
        n_chains: N, the chains in every question.
    """

    name: ClassVar[str]
    most_chains: ClassVar[int]

    n_chains: int = 4

    def __post_init__(self) -> None:
        self.check("n_chains", 2, self.most_chains)

    def check(self, field: str, least: int, most: int) -> None:
        """Refuse a size that is out of range.

        Raises:
            BadInput: it is.
        """
        check_size(f"{self.name}: {field}", getattr(self, field), least, most)

    @property
    @abstractmethod
    def chance(self) -> float:
        """The share of right answers of who guesses among the acceptable ones."""

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """What the symbols of a chain do, in the order of the chain; each line's end has a role too."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Question:
        """A question whose every choice was left to chance."""

    def stream(self, seed: int) -> Iterator[Question]:
        """Questions without end, none of them twice, the same ones for the same seed.

        Raises:
            BadInput: there are no further ones of this size.
        """
        rng, seen = RngStream.EVALUATION.generator(seed, *self.name.encode(), *astuple(self)), set[str]()
        while True:
            for _ in range(TRIES):
                question = self.draw(rng)
                if question.prompt not in seen:
                    break
            else:
                raise BadInput(f"{self.name}: no more than {len(seen)} different questions were found of this size")
            seen.add(question.prompt)
            yield question

    def questions(self, n: int, seed: int) -> list[Question]:
        """``n`` questions, none of them twice, the same ones for the same seed.

        Raises:
            BadInput: there are not so many of this size, or ``n`` is out of range.
        """
        check_size("the number of questions", n, 1, MOST_QUESTIONS)
        return list(islice(self.stream(seed), n))


def permutation(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """0 to n - 1, in an order left to chance."""
    return tuple(rng.permutation(n).tolist())


def permutations(rng: np.random.Generator, rows: int, n: int) -> tuple[tuple[int, ...], ...]:
    """So many of them."""
    return tuple(permutation(rng, n) for _ in range(rows))

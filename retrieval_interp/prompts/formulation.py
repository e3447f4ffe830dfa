"""Formulation: the base class of the five formulations."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from itertools import islice
from typing import ClassVar

import numpy as np

from circuits.errors import BadInput, whole
from retrieval_interp.prompts.question import Question
from retrieval_interp.rng import RngStream

MOST_QUESTIONS = 10**6  # limit of the set of prompts that prevents repetitions
TRIES = 1000  # repeated questions in a row, after which no new one is expected


@dataclass(frozen=True)
class Formulation(ABC):
    """A formulation of the retrieval problem in words (paper, section 4).

    Attributes:
        name: the name of the formulation.
        most_chains: the largest N.
        n_chains: N, the number of chains in every question.
    """

    name: ClassVar[str]
    most_chains: ClassVar[int]

    n_chains: int = 4

    def __post_init__(self) -> None:
        self.check("n_chains", 2, self.most_chains)

    def check(self, field: str, least: int, most: int) -> None:
        """Check that a size is in range; BadInput if the size is out of range."""
        object.__setattr__(self, field, whole(f"{self.name}: {field}", getattr(self, field), least, most))

    @property
    def chance(self) -> float:
        """The accuracy of a model that guesses among the acceptable answers; of N unless said otherwise."""
        return 1 / self.n_chains

    @property
    @abstractmethod
    def roles(self) -> tuple[str, ...]:
        """The roles of a chain's symbols, in the order of the chain, and of the line breaks after its facts."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> Question:
        """Draw a random question."""

    def stream(self, seed: int) -> Iterator[Question]:
        """Yield different questions without end; the same seed gives the same questions.

        Raises:
            BadInput: no further question of this size was found.
        """
        rng, seen = RngStream.EVALUATION.generator(seed, *self.name.encode(), *astuple(self)), set[str]()
        while True:
            for _ in range(TRIES):
                question = self.draw(rng)
                if question.prompt not in seen:
                    break
            else:
                size = ", ".join(f"{one.name} {getattr(self, one.name)}" for one in fields(self))
                said = f"only {len(seen)} different questions were found, and none in {TRIES} more draws"
                raise BadInput(f"{self.name} ({size}): {said}; ask for fewer, those solved before included")
            seen.add(question.prompt)
            yield question

    def questions(self, n: int, seed: int) -> list[Question]:
        """Return ``n`` different questions; the same seed gives the same questions.

        Raises:
            BadInput: fewer questions of this size were found, or ``n`` is out of range.
        """
        n = whole("the number of questions", n, 1, MOST_QUESTIONS)
        return list(islice(self.stream(seed), n))


def permutation(rng: np.random.Generator, n: int) -> tuple[int, ...]:
    """Return a random permutation of 0 to n - 1."""
    return tuple(rng.permutation(n).tolist())


def permutations(rng: np.random.Generator, rows: int, n: int) -> tuple[tuple[int, ...], ...]:
    """Return ``rows`` random permutations of 0 to n - 1."""
    return tuple(permutation(rng, n) for _ in range(rows))

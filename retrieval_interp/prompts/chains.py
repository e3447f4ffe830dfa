"""The formulations with simple chains: every fact leads from one symbol to the next."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutations
from retrieval_interp.prompts.question import Question, Script

MOST_STEPS = 100


@dataclass(frozen=True)
class Chains(Formulation):
    """A formulation with N chains of D facts; block b holds the facts of step D - b.

    Attributes:
        ask: the last line, which asks the question, with the slot ``query``.
    """

    ask: ClassVar[str]

    @property
    @abstractmethod
    def hops(self) -> int:
        """D, the number of facts in every chain."""

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, and for every step k ``pair{k}.first``, ``pair{k}.second``, ``pair{k}.end`` (the line break)."""
        members = ("first", "second", "end")
        return ("query", *(f"pair{k}.{member}" for k in range(1, self.hops + 1) for member in members))

    @abstractmethod
    def symbol(self, block: int, number: int) -> str:
        """Return the word of a symbol; the symbols of block -1 are the answers."""

    @abstractmethod
    def fact(self, block: int, first: str, second: str) -> tuple[str, str, str]:
        """Return a fact from a symbol of a block to one of the block before: its line, and both words, inflected."""

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw a random question."""
        D, N = self.hops, self.n_chains
        return self.write(permutations(rng, D, N), permutations(rng, D, N), int(rng.integers(N)))

    def write(self, to: Sequence[Sequence[int]], order: Sequence[Sequence[int]], asked: int) -> Question:
        """Return the question with the given choices. A block holds the facts of one step; that of step D is first.

        Args:
            to: for each of the N symbols of every block, the number of the symbol of the block before that it leads to;
                in the first block, the number of the answer.
            order: for every block, the order of its facts.
            asked: the number of the symbol of the last block that is asked about.
        """
        D, N = self.hops, self.n_chains
        chains = [[start] for start in range(N)]  # the symbol numbers of each chain, from the last block on
        for leads in reversed(to):
            for chain in chains:
                chain.append(leads[chain[-1]])
        script = Script()
        for block, numbers in enumerate(order):
            k = D - block
            of_chain = {chain[k - 1]: number for number, chain in enumerate(chains)}
            for number in numbers:
                end = self.symbol(block - 1, to[block][number])
                text, first, second = self.fact(block, self.symbol(block, number), end)
                script.line(text, {"first": first, "second": second}, f"pair{k}", of_chain[number])
        script.line(self.ask, {"query": self.symbol(D - 1, asked)}, chain=asked)
        symbols = tuple(self.symbol(D - 1 - k, number) for k, number in enumerate(chains[asked]))
        return script.question(self.name, (self.symbol(-1, number) for number in range(N)), symbols, asked)


@dataclass(frozen=True)
class AnyLength(Chains):
    """A formulation whose chains can have any number of facts.

    Attributes:
        n_steps: D, the number of facts in every chain.
    """

    most_chains = 100

    n_steps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("n_steps", 1, MOST_STEPS)

    @property
    def hops(self) -> int:
        """D, the number of facts in every chain."""
        return self.n_steps

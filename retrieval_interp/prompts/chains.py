"""The formulations with simple chains: every fact leads from one symbol to the next."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutations
from retrieval_interp.prompts.question import Mention, Question, Script

Pieces = tuple[str | Mention, ...]

MOST_STEPS = 100


@dataclass(frozen=True)
class Links:
    """The random choices of a question. A block holds the facts of one step; the block of step D is first.

    Attributes:
        to: for each of the N symbols of every block, the number of the symbol of the block before that it leads to; in
            the first block, the number of the answer.
        order: for every block, the order of its facts.
        asked: the number of the symbol of the last block that is asked about.
    """

    to: tuple[tuple[int, ...], ...]
    order: tuple[tuple[int, ...], ...]
    asked: int


@dataclass(frozen=True)
class Chains(Formulation):
    """A formulation with N chains of D facts; block b holds the facts of step D - b."""

    @property
    @abstractmethod
    def hops(self) -> int:
        """D, the number of facts in every chain."""

    @property
    def chance(self) -> float:
        """1/N."""
        return 1 / self.n_chains

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, and for every step k ``pair{k}.first``, ``pair{k}.second``, ``pair{k}.end`` (the line break)."""
        members = ("first", "second", "end")
        return ("query", *(f"pair{k}.{member}" for k in range(1, self.hops + 1) for member in members))

    @abstractmethod
    def symbol(self, block: int, number: int) -> str:
        """Return the word of a symbol; the symbols of block -1 are the answers."""

    @abstractmethod
    def fact(self, block: int, first: Mention, second: Mention) -> Pieces:
        """Return the line of a fact from a symbol of a block to a symbol of the block before, with inflected words."""

    @abstractmethod
    def ask(self, query: Mention) -> Pieces:
        """Return the last line, which asks the question."""

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw a random question."""
        D, N = self.hops, self.n_chains
        return self.write(Links(permutations(rng, D, N), permutations(rng, D, N), int(rng.integers(N))))

    def write(self, links: Links) -> Question:
        """Return the question with the given choices."""
        D, N = self.hops, self.n_chains
        chains = [[start] for start in range(N)]  # the symbol numbers of each chain, from the last block on
        for to in reversed(links.to):
            for chain in chains:
                chain.append(to[chain[-1]])
        script = Script()
        for block, order in enumerate(links.order):
            k = D - block
            of_chain = {chain[k - 1]: number for number, chain in enumerate(chains)}
            for first in order:
                number = of_chain[first]
                script.line(
                    *self.fact(
                        block,
                        Mention(self.symbol(block, first), f"pair{k}.first", number),
                        Mention(self.symbol(block - 1, links.to[block][first]), f"pair{k}.second", number),
                    ),
                    fact=f"pair{k}",
                    chain=number,
                )
        script.line(*self.ask(Mention(self.symbol(D - 1, links.asked), "query", links.asked)))
        symbols = tuple(self.symbol(D - 1 - k, number) for k, number in enumerate(chains[links.asked]))
        answers = (self.symbol(-1, number) for number in range(N))
        return script.question(self.name, answers, symbols, links.asked)


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

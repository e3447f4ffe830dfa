"""The formulations whose chains are plain ones: every fact leads from one symbol to the next."""

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutations
from retrieval_interp.prompts.question import Mention, Question, Script

Pieces = tuple[str | Mention, ...]

MOST_STEPS = 100


@dataclass(frozen=True)
class Links:
    """What chance decides of a question; a block is what stands together, the last step D first.

    Attributes:
        to: for every block and each of its N symbols, in the order of the words, to which symbol of the block before
            it leads; in the first block, to which answer.
        order: for every block the order in which its facts stand.
        asked: which symbol of the last block is asked about.
    """

    to: tuple[tuple[int, ...], ...]
    order: tuple[tuple[int, ...], ...]
    asked: int


@dataclass(frozen=True)
class Chains(Formulation):
    """A formulation with N chains of D facts; block b holds those of step D - b."""

    @property
    @abstractmethod
    def hops(self) -> int:
        """D."""

    @property
    def chance(self) -> float:
        """One in N."""
        return 1 / self.n_chains

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, and for every step k ``pair{k}.first``, ``pair{k}.second`` and ``pair{k}.end``, the line break."""
        members = ("first", "second", "end")
        return ("query", *(f"pair{k}.{member}" for k in range(1, self.hops + 1) for member in members))

    @abstractmethod
    def symbol(self, block: int, number: int) -> str:
        """The word of a symbol; those of block -1 are the answers."""

    @abstractmethod
    def fact(self, block: int, first: Mention, second: Mention) -> Pieces:
        """The line that leads from a block's symbol to one of the block before, in the forms that it needs."""

    @abstractmethod
    def ask(self, query: Mention) -> Pieces:
        """The last line."""

    def draw(self, rng: np.random.Generator) -> Question:
        """A question whose every choice was left to chance."""
        D, N = self.hops, self.n_chains
        return self.write(Links(permutations(rng, D, N), permutations(rng, D, N), int(rng.integers(N))))

    def write(self, links: Links) -> Question:
        """The question of these choices."""
        D, N = self.hops, self.n_chains
        chains = [[start] for start in range(N)]  # for each chain its symbols' numbers, from the last block on
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
    """Chains of as many facts as one likes.

    Attributes:
        n_steps: D, the facts of every chain.
    """

    most_chains = 100

    n_steps: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("n_steps", 1, MOST_STEPS)

    @property
    def hops(self) -> int:
        """D."""
        return self.n_steps

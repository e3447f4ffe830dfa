"""F3, kingdoms (paper, appendix A.3): from a disease through a mineral, a meat, a belief and a kingdom to a name."""

from dataclasses import dataclass, replace

from retrieval_interp.prompts.chains import Chains, Pieces
from retrieval_interp.prompts.question import Mention
from retrieval_interp.prompts.words import NAMES

# Facts inflect these words: Novaria's people are Novarians, believers in harmonianism Harmonianists.
KINGDOMS = ("Novaria", "Silvania", "Aurora", "Florinia", "Belmora", "Drakonia", "Valdoria", "Ostravia")
BELIEFS = ("harmonian", "celestian", "elysian", "lumin", "solar", "verit", "unit", "lunar")
MEATS = ("lamb", "chicken", "pork", "beef", "duck", "turkey", "veal", "venison")
MINERALS = ("Zephyrium", "Nephryon", "Virellium", "Astralyte", "Cobryllium", "Pyronite", "Thalorine", "Quorium")
DISEASES = ("Chronogy", "Synthemia", "Somnosis", "Aetherflux", "Noctalgia", "Vertigia", "Lithemia", "Pallidosis")
BLOCKS = (KINGDOMS, tuple(f"{belief}ism" for belief in BELIEFS), MEATS, MINERALS, DISEASES)


@dataclass(frozen=True)
class Kingdoms(Chains):
    """Chains of five steps: disease, mineral, meat, belief, kingdom, name."""

    name = "kingdoms"
    most_chains = len(KINGDOMS)

    @property
    def hops(self) -> int:
        """D, always 5."""
        return len(BLOCKS)

    def symbol(self, block: int, number: int) -> str:
        """Return a word of the block's list; the answers are names."""
        return NAMES[number] if block < 0 else BLOCKS[block][number]

    def fact(self, block: int, first: Mention, second: Mention) -> Pieces:
        """Return the sentence of a fact; the symbol of the block before comes first in it."""
        if block == 0:
            return second, " lives in ", first, "."
        if block == 1:
            return replace(second, text=f"{second.text}ns"), " believe in ", first, "."
        if block == 2:
            return replace(second, text=f"{second.text.removesuffix('ism').capitalize()}ists"), " eat ", first, "."
        if block == 3:
            return replace(second, text=second.text.capitalize()), " contains ", first, "."
        return second, " causes ", first, "."

    def ask(self, query: Mention) -> Pieces:
        """Return the question for the person with the disease."""
        return "Who has ", query, "? Say directly the name without other words."

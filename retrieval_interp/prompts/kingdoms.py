"""F3, kingdoms (paper, appendix A.3): from a disease through a mineral, a meat, a belief and a kingdom to a name."""

from dataclasses import dataclass

from retrieval_interp.prompts.chains import Chains
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
    ask = "Who has {query}? Say directly the name without other words."
    most_chains = len(KINGDOMS)

    @property
    def hops(self) -> int:
        """D, always 5."""
        return len(BLOCKS)

    def symbol(self, block: int, number: int) -> str:
        """Return a word of the block's list; the answers are names."""
        return NAMES[number] if block < 0 else BLOCKS[block][number]

    def fact(self, block: int, first: str, second: str) -> tuple[str, str, str]:
        """Return the sentence of a fact; the symbol of the block before comes first in it."""
        verb = ("lives in", "believe in", "eat", "contains", "causes")[block]
        believers = f"{second.removesuffix('ism').capitalize()}ists"
        inflected = (second, f"{second}ns", believers, second.capitalize(), second)[block]
        return f"{{second}} {verb} {{first}}.", first, inflected

"""F3, kingdoms (paper, appendix A.3): from a disease over minerals, meats, beliefs and kingdoms to who has it."""

from dataclasses import dataclass, replace

from retrieval_interp.prompts.chains import Chains, Pieces
from retrieval_interp.prompts.question import Mention
from retrieval_interp.prompts.words import NAMES

# Of a kingdom come its people, Novarians; of a belief its believers, Harmonianists.
KINGDOMS = ("Novaria", "Silvania", "Aurora", "Florinia", "Belmora", "Drakonia", "Valdoria", "Ostravia")
BELIEFS = ("harmonian", "celestian", "elysian", "lumin", "solar", "verit", "unit", "lunar")
MEATS = ("lamb", "chicken", "pork", "beef", "duck", "turkey", "veal", "venison")
MINERALS = ("Zephyrium", "Nephryon", "Virellium", "Astralyte", "Cobryllium", "Pyronite", "Thalorine", "Quorium")
DISEASES = ("Chronogy", "Synthemia", "Somnosis", "Aetherflux", "Noctalgia", "Vertigia", "Lithemia", "Pallidosis")
BLOCKS = (KINGDOMS, tuple(f"{belief}ism" for belief in BELIEFS), MEATS, MINERALS, DISEASES)


@dataclass(frozen=True)
class Kingdoms(Chains):
    """Always five steps: disease, mineral, meat, belief, kingdom, name."""

    name = "kingdoms"
    most_chains = len(KINGDOMS)

    @property
    def hops(self) -> int:
        """Five."""
        return len(BLOCKS)

    def symbol(self, block: int, number: int) -> str:
        """The word of a list; the answers are names."""
        return NAMES[number] if block < 0 else BLOCKS[block][number]

    def fact(self, block: int, first: Mention, second: Mention) -> Pieces:
        """What leads on stands second in its sentence, and what it leads to first."""
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
        """For who has the disease."""
        return "Who has ", query, "? Say directly the name without other words."

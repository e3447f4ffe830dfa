"""F2, lives-with (paper, appendix A.2): "Alice lives in Switzerland. Bob lives with Alice. Where does Bob live?"."""

from dataclasses import dataclass

from retrieval_interp.prompts.chains import AnyLength
from retrieval_interp.prompts.words import CITIES, NAMES, word


@dataclass(frozen=True)
class LivesWith(AnyLength):
    """Chains of people; each lives with the next one, and the last lives in a city."""

    name = "lives_with"
    ask = "Where does {query} live? Say directly only the name of the city, without any other words."

    def symbol(self, block: int, number: int) -> str:
        """Return Alice, Bob, ... from the first line on; the answers are cities."""
        return word(CITIES, number) if block < 0 else word(NAMES, block * self.n_chains + number)

    def fact(self, block: int, first: str, second: str) -> tuple[str, str, str]:
        """Return the sentence that says where or with whom a person lives."""
        return "{first} lives in {second}" if block == 0 else "{first} lives with {second}", first, second

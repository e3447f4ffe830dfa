"""F1, equations (paper, appendix A.1): "a = 3. b = a. c = b. c = ?"."""

from dataclasses import dataclass

from retrieval_interp.prompts.chains import AnyLength
from retrieval_interp.prompts.words import VARIABLES, word


@dataclass(frozen=True)
class Equations(AnyLength):
    """Chains of variables; each equals the next one, and the last equals a number from 0 to N - 1."""

    name = "equations"
    ask = "What is the value of {query}? Say directly only the numeric value, without any other words."

    def symbol(self, block: int, number: int) -> str:
        """Return a, b, c, ... from the first line on; the answers are numbers."""
        return str(number) if block < 0 else word(VARIABLES, block * self.n_chains + number)

    def fact(self, block: int, first: str, second: str) -> tuple[str, str, str]:
        """Return an equation."""
        return "{first} = {second}", first, second

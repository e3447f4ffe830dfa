"""F4, functions (paper, appendix A.4), conditional retrieval: "f(2) = 3. g = f. a = 2. g(a) = ?"."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutation, permutations
from retrieval_interp.prompts.question import Question, Script
from retrieval_interp.prompts.words import VARIABLES, word

ASK = "What is the value of {query.function}({query.argument})? "
REST = "Say directly only the numeric value, without any other words."


@dataclass(frozen=True)
class Functions(Formulation):
    """N functions given by tables, N aliases of the functions, and N aliases of the arguments.

    Neither the function nor the argument alone determines the value. Chain c belongs to the c-th alias of a function.
    The offset (modulo N) from it to its alias of an argument is the offset between the two aliases in the question.
    """

    name = "functions"
    most_chains = 26

    @property
    def roles(self) -> tuple[str, ...]:
        """The two symbols of the question, then the members of the three facts, and the line break after each fact."""
        alias = ("first", "second", "end")
        return (
            *("query.function", "query.argument"),
            *(f"{fact}.{member}" for fact in ("function", "argument") for member in alias),
            *(f"value.{member}" for member in ("first", "second", "third", "end")),
        )

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw a random question."""
        N = self.n_chains
        asked = int(rng.integers(N)), int(rng.integers(N))
        return self.write(permutations(rng, N, N), permutation(rng, N), permutation(rng, N), asked)

    def write(
        self,
        values: Sequence[Sequence[int]],
        functions: Sequence[int],
        arguments: Sequence[int],
        asked: tuple[int, int],
    ) -> Question:
        """Return the question with the given choices.

        Args:
            values: for each of N functions, its values at 0 to N - 1, a permutation.
            functions: for each alias of a function, the number of the function.
            arguments: for each alias of an argument, the argument.
            asked: the numbers of the function's alias and of the argument's alias in the question, each from 0.
        """
        N, (function, argument) = self.n_chains, asked
        table, named, given = (tuple(word(VARIABLES, part * N + i) for i in range(N)) for part in range(3))
        shift = argument - function
        chain_of = {(functions[chain], arguments[(chain + shift) % N]): chain for chain in range(N)}  # by table entry
        script = Script()
        for number, row in enumerate(values):
            for at, value in enumerate(row):
                words = {"first": table[number], "second": str(at), "third": str(value)}
                script.line("{first}({second}) = {third}", words, "value", chain_of.get((number, at)))
        for number, of in enumerate(functions):
            script.line("{first} = {second}", {"first": named[number], "second": table[of]}, "function", number)
        for number, of in enumerate(arguments):
            words = {"first": given[number], "second": str(of)}
            script.line("{first} = {second}", words, "argument", (number - shift) % N)
        words = {"query.function": named[function], "query.argument": given[argument]}
        script.line(ASK + REST, words, chain=function)
        first, at = functions[function], arguments[argument]
        symbols = named[function], given[argument], table[first], str(at), str(values[first][at])
        return script.question(self.name, map(str, range(N)), symbols, function)

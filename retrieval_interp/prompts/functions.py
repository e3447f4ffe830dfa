"""F4, functions (paper, appendix A.4), conditional retrieval: "f(2) = 3. g = f. a = 2. g(a) = ?"."""

from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutation, permutations
from retrieval_interp.prompts.question import Mention, Question, Script
from retrieval_interp.prompts.words import VARIABLES, word


@dataclass(frozen=True)
class Tables:
    """The random choices of a question.

    Attributes:
        values: for each of N functions, its values at 0 to N - 1, a permutation.
        functions: for each alias of a function, the number of the function.
        arguments: for each alias of an argument, the argument.
        asked: the numbers of the function's alias and of the argument's alias in the question, each from 0 to N - 1.
    """

    values: tuple[tuple[int, ...], ...]
    functions: tuple[int, ...]
    arguments: tuple[int, ...]
    asked: tuple[int, int]


@dataclass(frozen=True)
class Functions(Formulation):
    """N functions given by tables, N aliases of the functions, and N aliases of the arguments.

    Neither the function nor the argument alone determines the value. Chain c belongs to the c-th alias of a function.
    The offset (modulo N) from it to its alias of an argument is the offset between the two aliases in the question.
    """

    name = "functions"
    most_chains = 26

    @property
    def chance(self) -> float:
        """1/N."""
        return 1 / self.n_chains

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
        return self.write(Tables(permutations(rng, N, N), permutation(rng, N), permutation(rng, N), asked))

    def write(self, tables: Tables) -> Question:
        """Return the question with the given choices."""
        N, (function, argument) = self.n_chains, tables.asked
        table, named, given = (tuple(word(VARIABLES, part * N + i) for i in range(N)) for part in range(3))
        shift = argument - function
        chain_of = {
            (tables.functions[chain], tables.arguments[(chain + shift) % N]): chain for chain in range(N)
        }  # by table entry; entries of no chain have no marks
        script = Script()
        for number, row in enumerate(tables.values):
            for at, value in enumerate(row):
                chain = chain_of.get((number, at))
                if chain is None:
                    script.line(f"{table[number]}({at}) = {value}")
                    continue
                members = (table[number], "("), (str(at), ") = "), (str(value), "")
                pieces: list[str | Mention] = []
                for (text, after), member in zip(members, ("first", "second", "third"), strict=True):
                    pieces += [Mention(text, f"value.{member}", chain), after]
                script.line(*pieces, fact="value", chain=chain)
        for number, of in enumerate(tables.functions):
            _alias(script, named[number], table[of], "function", number)
        for number, of in enumerate(tables.arguments):
            _alias(script, given[number], str(of), "argument", (number - shift) % N)
        script.line(
            *("What is the value of ", Mention(named[function], "query.function", function), "("),
            *(Mention(given[argument], "query.argument", function), ")? "),
            "Say directly only the numeric value, without any other words.",
        )
        first, at = tables.functions[function], tables.arguments[argument]
        symbols = named[function], given[argument], table[first], str(at), str(tables.values[first][at])
        return script.question(self.name, map(str, range(N)), symbols, function)


def _alias(script: Script, name: str, of: str, fact: str, chain: int) -> None:
    pieces = Mention(name, f"{fact}.first", chain), " = ", Mention(of, f"{fact}.second", chain)
    script.line(*pieces, fact=fact, chain=chain)

"""F5, relatives (paper, appendix A.5), conditional retrieval: a person's profession decides with whom they live."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutation, permutations
from retrieval_interp.prompts.question import Question, Script

PEOPLE = ("John", "Chris", "Diana", "Eve", "Simon", "Tara")
PROFESSIONS = ("doctor", "lawyer", "teacher", "engineer", "baker", "painter")
RELATIONS = ("mother", "sister", "father", "brother", "aunt", "uncle")
FEMALE = {"mother", "sister", "aunt"}
WOMEN = (
    *("Cathy", "Dana", "Isabelle", "Jane", "Lily", "Nancy", "Olivia", "Penny", "Rita", "Sarah", "Uma", "Vicky"),
    *("Wanda", "Yolanda", "Zara", "Amelia", "Beth", "Fiona"),
)
MEN = (
    *("Adam", "Bob", "Ed", "Fred", "George", "Hank", "Kevin", "Mike", "Quincy", "Steve", "Ted", "Umar"),
    *("Vince", "Walt", "Xander", "Yan", "Zack", "Carl"),
)
COUNTRIES = (
    *("Argentina", "Brazil", "Canada", "Denmark", "England", "France", "Germany", "Hungary", "Italy", "Japan"),
    *("Kenya", "Laos", "Mexico", "Norway", "Peru", "Qatar", "Romania", "Spain", "Turkey", "Uruguay", "Vietnam"),
    *("Wales", "Yemen", "Zambia", "Austria", "Belgium", "Chile", "Egypt", "Finland", "Greece", "Haiti", "India"),
    *("Jordan", "Kuwait", "Latvia", "Malta"),
)
ASK = "Where does {query} live? Say directly only the name, without any other words."


@dataclass(frozen=True)
class Relatives(Formulation):
    """N people with N relatives each, one chain per person: their home depends on their relatives and profession."""

    name = "relatives"
    most_chains = len(PEOPLE)

    @property
    def chance(self) -> float:
        """1/N²: every relative lives in another country."""
        return 1 / self.n_chains**2

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, then the members of the facts job, custom, relative and home, and the line break after each."""
        pair, three = ("first", "second", "end"), ("first", "second", "third", "end")
        facts = {"job": pair, "custom": pair, "relative": three, "home": pair}
        return ("query", *(f"{fact}.{member}" for fact, members in facts.items() for member in members))

    def draw(self, rng: np.random.Generator) -> Question:
        """Draw a random question."""
        N = self.n_chains
        female = [relation in FEMALE for relation in RELATIONS[:N]]
        women, men = (
            [names[i] for i in permutation(rng, N * count)]
            for names, count in ((WOMEN, sum(female)), (MEN, N - sum(female)))
        )
        relatives = tuple(tuple((women if she else men).pop() for she in female) for _ in range(N))
        names = [name for row in relatives for name in row]
        lines, countries = permutations(rng, 2, N * N)
        homes = tuple((names[line], COUNTRIES[country]) for line, country in zip(lines, countries, strict=True))
        customs = tuple(zip(permutation(rng, N), permutation(rng, N), strict=True))
        return self.write(relatives, homes, customs, permutation(rng, N), permutation(rng, N), int(rng.integers(N)))

    def write(
        self,
        relatives: Sequence[Sequence[str]],
        homes: Sequence[tuple[str, str]],
        customs: Sequence[tuple[int, int]],
        jobs: Sequence[int],
        order: Sequence[int],
        asked: int,
    ) -> Question:
        """Return the question with the given choices. People, professions and relations are numbers in the lists above.

        Args:
            relatives: for each of N people, the names of N relatives.
            homes: for each of N² names, a country, in the order of these lines.
            customs: for each profession, the relation that its members live with, in the order of these lines.
            jobs: for each person, a profession.
            order: the order of the people in the lines about relatives and about professions.
            asked: the number of the person who is asked about.
        """
        relation = [dict(customs)[jobs[person]] for person in range(self.n_chains)]  # whom each person lives with
        host = [names[kind] for names, kind in zip(relatives, relation, strict=True)]
        script = Script()
        for name, country in homes:
            chain = host.index(name) if name in host else None
            script.line("{first} lives in {second}.", {"first": name, "second": country}, "home", chain)
        for person in order:
            for kind, name in enumerate(relatives[person]):
                words = {"first": f"{PEOPLE[person]}s", "second": RELATIONS[kind], "third": name}
                chain = person if kind == relation[person] else None
                script.line("{first} {second} is {third}.", words, "relative", chain)
        for job, kind in customs:
            words = {"first": f"{PROFESSIONS[job].capitalize()}s", "second": f"{RELATIONS[kind]}s"}
            script.line("{first} live with their {second}.", words, "custom", jobs.index(job))
        for person in order:
            profession = PROFESSIONS[jobs[person]]
            article = "an" if profession[0] in "aeiou" else "a"
            words = {"first": PEOPLE[person], "second": profession}
            script.line(f"{{first}} works as {article} {{second}}.", words, "job", person)
        script.line(ASK, {"query": PEOPLE[asked]}, chain=asked)
        known = PROFESSIONS[jobs[asked]], RELATIONS[relation[asked]], host[asked]
        symbols = PEOPLE[asked], *known, dict(homes)[host[asked]]
        return script.question(self.name, sorted(country for _, country in homes), symbols, asked)

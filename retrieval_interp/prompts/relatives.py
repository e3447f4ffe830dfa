"""F5, relatives (paper, appendix A.5), conditional retrieval: a person's profession decides with whom they live."""

from dataclasses import dataclass

import numpy as np

from retrieval_interp.prompts.formulation import Formulation, permutation, permutations
from retrieval_interp.prompts.question import Mention, Question, Script

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


@dataclass(frozen=True)
class Families:
    """The random choices of a question. People, professions and relations are numbers in the lists above.

    Attributes:
        relatives: for each of N people, the names of N relatives.
        homes: for each of N² names, a country, in the order of these lines.
        customs: for each profession, the relation that its members live with, in the order of these lines.
        jobs: for each person, a profession.
        order: the order of the people in the lines about relatives and about professions.
        asked: the number of the person who is asked about.
    """

    relatives: tuple[tuple[str, ...], ...]
    homes: tuple[tuple[str, str], ...]
    customs: tuple[tuple[int, int], ...]
    jobs: tuple[int, ...]
    order: tuple[int, ...]
    asked: int


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
        return self.write(
            Families(relatives, homes, customs, permutation(rng, N), permutation(rng, N), int(rng.integers(N)))
        )

    def write(self, families: Families) -> Question:
        """Return the question with the given choices."""
        N = self.n_chains
        custom = dict(families.customs)
        relation = [custom[families.jobs[person]] for person in range(N)]  # the relation that each person lives with
        host = [families.relatives[person][relation[person]] for person in range(N)]
        script = Script()
        for name, country in families.homes:
            if name not in host:
                script.line(f"{name} lives in {country}.")
                continue
            chain = host.index(name)
            pieces = Mention(name, "home.first", chain), " lives in ", Mention(country, "home.second", chain), "."
            script.line(*pieces, fact="home", chain=chain)
        for person in families.order:
            for kind, name in enumerate(families.relatives[person]):
                if kind != relation[person]:
                    script.line(f"{PEOPLE[person]}s {RELATIONS[kind]} is {name}.")
                    continue
                script.line(
                    *(Mention(f"{PEOPLE[person]}s", "relative.first", person), " "),
                    *(Mention(RELATIONS[kind], "relative.second", person), " is "),
                    *(Mention(name, "relative.third", person), "."),
                    fact="relative",
                    chain=person,
                )
        for job, kind in families.customs:
            chain = families.jobs.index(job)
            script.line(
                *(Mention(f"{PROFESSIONS[job].capitalize()}s", "custom.first", chain), " live with their "),
                *(Mention(f"{RELATIONS[kind]}s", "custom.second", chain), "."),
                fact="custom",
                chain=chain,
            )
        for person in families.order:
            job_name = PROFESSIONS[families.jobs[person]]
            script.line(
                *(Mention(PEOPLE[person], "job.first", person), f" works as {_article(job_name)} "),
                *(Mention(job_name, "job.second", person), "."),
                fact="job",
                chain=person,
            )
        asked = families.asked
        query = Mention(PEOPLE[asked], "query", asked)
        script.line("Where does ", query, " live? Say directly only the name, without any other words.")
        job, kind, country = families.jobs[asked], relation[asked], dict(families.homes)[host[asked]]
        symbols = PEOPLE[asked], PROFESSIONS[job], RELATIONS[kind], host[asked], country
        return script.question(self.name, sorted(country for _, country in families.homes), symbols, asked)


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" else "a"

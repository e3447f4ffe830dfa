"""Facts that depend on one another, and the layers that it takes to follow them (paper, section 3.1).

In the retrieval problem every fact leads from one token to the next, a chain. In the conditional one a fact may need
several tokens found before: a directed acyclic graph. In the paper's functions, ``f(2) = 3. g = f. a = 2. g(a) = ?``:

    query: [g, a]
    asked: =3
    facts:                        # all of them, in the order in which they stand
      values: [f 1 -> =2, f 2 -> =3, k 1 -> =3, k 2 -> =1]
      functions: [g -> f, h -> k]
      arguments: [b -> 1, a -> 2]

Facts of one form look alike: ``f`` does not tell ``f 2 -> =3`` from ``f 1 -> =2``, nor does ``2`` from ``k 2 -> =1``.
A token that means two things is written as two: here a number that is an argument, 2, and one that is a value, =2.
"""

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.flow.layout import Layout
from circuits.utils.yaml_file import read_yaml
from retrieval_interp.theory.information_flow import layers_until

ARROW = "->"
MOST_FACTS = 60


@dataclass(frozen=True)
class Fact:
    """Who knows all the premises can look the conclusion up.

    Attributes:
        premises: one token or several.
        conclusion: one token.
    """

    premises: tuple[str, ...]
    conclusion: str

    @classmethod
    def of(cls, text: str) -> "Fact":
        """Read ``f 2 -> 3``.

        Raises:
            BadInput: it is written in another way.
        """
        before, arrow, after = text.partition(ARROW)
        premises, conclusion = tuple(before.split()), after.split()
        if not arrow or not premises or len(conclusion) != 1 or len({*premises, *conclusion}) != 1 + len(premises):
            raise BadInput(f"fact {text[:80]!r}; expected different tokens, one of them after the arrow: a b -> c")
        return cls(premises, conclusion[0])

    @property
    def tokens(self) -> tuple[str, ...]:
        """In the order in which they stand."""
        return (*self.premises, self.conclusion)

    def __str__(self) -> str:
        return f"{' '.join(self.premises)} {ARROW} {self.conclusion}"


@dataclass(frozen=True)
class Facts:
    """A question, and facts of which some answer it; the query stands last.

    Attributes:
        query: the tokens that the question holds.
        forms: the facts of every form, in the order in which they stand.
        asked: the token that the answer is.
    """

    query: tuple[str, ...]
    forms: Mapping[str, tuple[Fact, ...]]
    asked: str

    def __post_init__(self) -> None:
        if not self.query or len({*self.query}) < len(self.query) or any(len(t.split()) != 1 for t in self.query):
            raise BadInput(f"the query holds {', '.join(self.query) or 'no token'}; expected different tokens")
        if len(self.facts) > MOST_FACTS:
            raise BadInput(f"{len(self.facts)} facts; expected at most {MOST_FACTS}")
        twice = [str(fact) for fact, times in Counter(self.facts).items() if times > 1]
        if twice:
            raise BadInput(f"fact '{twice[0]}' stands there twice")
        for form, facts in self.forms.items():
            if len({len(fact.premises) for fact in facts}) > 1:
                raise BadInput(f"the facts of the form {form!r} have different numbers of premises")
            same = [str(fact) for fact in facts if sum(fact.premises == other.premises for other in facts) > 1]
            if same:
                raise BadInput(f"the facts {' and '.join(same[:2])} of the form {form!r} have the same premises")
        self._refuse_circles()
        derived, before = {*self.query}, 0
        while before < len(derived):
            before = len(derived)
            derived |= {fact.conclusion for fact in self.facts if derived.issuperset(fact.premises)}
        if self.asked in self.query or self.asked not in derived:
            raise BadInput(f"{self.asked!r} is asked, but {self._why_not(derived)}")

    def _refuse_circles(self) -> None:
        """Refuse facts by which a token leads back to itself."""
        leads = {
            token: [f.conclusion for f in self.facts if token in f.premises] for f in self.facts for token in f.tokens
        }
        try:
            tuple(TopologicalSorter(leads).static_order())
        except CycleError as error:
            raise BadInput(f"the facts go round in a circle: {f' {ARROW} '.join(error.args[1][::-1])}") from error

    def _why_not(self, derived: Set[str]) -> str:
        """Why what is asked does not follow from the query."""
        token = self.asked
        while token not in self.query:
            telling = [fact for fact in self.facts if fact.conclusion == token]
            if not telling:
                return f"no fact tells {token!r}, and the query does not hold it"
            token = next(premise for premise in telling[0].premises if premise not in derived)
        return "the query holds it already"

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts, in the order in which they stand."""
        return tuple(fact for facts in self.forms.values() for fact in facts)

    @property
    def reader(self) -> str:
        """The role at which the answer is read: the last of the query's."""
        return role("query", self.query[-1])

    @property
    def layout(self) -> Layout:
        """What each position starts with, its token and the place of its fact; facts of one form look alike."""
        start, alike = {}, {}
        for facts in self.forms.values():
            for fact in facts:
                for member, token in enumerate(fact.tokens):
                    start[role(fact, token)] = frozenset({token, f"place of {fact}"})
                    others = (other for other in facts if other != fact)
                    alike[role(fact, token)] = tuple(role(other, other.tokens[member]) for other in others)
        for token in self.query:
            start[role("query", token)] = frozenset({token, "place of the query"})
        return Layout(start, frozenset(f"place of {fact}" for fact in (*self.facts, "the query")), alike)

    def layers(self, *, causal: bool) -> int | None:
        """How many layers it takes until the last position of the query knows the answer; None if it never does.

        Everybody takes what can be found, as soon as it can be found (``spread``). Without a mask heads
        may still look back only, so it never takes more layers than with it.
        """
        masks = (True,) if causal else (True, False)
        found = [layers_until(self.layout, self.reader, self.asked, causal=mask) for mask in masks]
        return min((layers for layers in found if layers is not None), default=None)


def role(fact: Fact | str, token: str) -> str:
    """The name of the position of a token in a fact."""
    return f"{fact}: {token}"


def load_facts(path: Path) -> Facts:
    """Read a question with its facts from YAML.

    Raises:
        BadInput: the file is missing, no YAML, or tells no question that can be answered.
    """
    document = read_yaml(path, "a question with its facts")
    try:
        return _read(document)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def _read(document: Any) -> Facts:
    keys = ("query", "asked", "facts")
    if not isinstance(document, dict) or {*document} != {*keys}:
        raise BadInput(f"expected the keys {', '.join(keys)}")
    query, asked = document["query"], document["asked"]
    if not isinstance(query, list) or not all(isinstance(token, str) for token in query):
        raise BadInput(f"query is {query!r:.80}; expected a list of tokens")
    if not isinstance(asked, str):
        raise BadInput(f"asked is {asked!r:.80}; expected a token")
    forms = document["facts"]
    if not isinstance(forms, dict) or not all(isinstance(facts, list) for facts in forms.values()):
        raise BadInput("expected for every form of facts a list of them")
    odd = [fact for facts in forms.values() for fact in facts if not isinstance(fact, str)]
    if odd:
        raise BadInput(f"fact {str(odd[0])[:80]}; expected a text such as a b -> c")
    told = {form: tuple(map(Fact.of, facts)) for form, facts in forms.items()}
    return Facts(tuple(query), told, asked)

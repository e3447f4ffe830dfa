"""Facts that depend on one another, and the number of layers to answer a question from them (paper, section 3.1).

In the retrieval problem every fact leads from one token to the next, so the facts form a chain. In the conditional
retrieval problem a fact can need several tokens that other facts give, so the facts form a directed acyclic graph. The
paper's functions, ``f(2) = 3. g = f. a = 2. g(a) = ?``, are written like this:

    query: [g, a]
    asked: =3
    facts:                        # all facts, in the order of the sequence
      values: [f 1 -> =2, f 2 -> =3, k 1 -> =3, k 2 -> =1]
      functions: [g -> f, h -> k]
      arguments: [b -> 1, a -> 2]

Facts of one form look alike. ``f`` does not distinguish ``f 2 -> =3`` from ``f 1 -> =2``, and ``2`` does not
distinguish it from ``k 2 -> =1``. A token with two meanings is written as two tokens: here a number is 2 as an argument
and =2 as a value.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from circuits.errors import BadInput
from circuits.task import Layout
from circuits.utils.files import read_text, to_path
from circuits.utils.yaml_file import LARGEST_FILE, parse
from retrieval_interp.theory.information_flow import layers_until

ARROW = "->"
MOST_FACTS = 60


@dataclass(frozen=True)
class Fact:
    """A fact: a position that knows all premises can look up the conclusion.

    Attributes:
        premises: the premises, one token or several.
        conclusion: the conclusion, one token.
    """

    premises: tuple[str, ...]
    conclusion: str

    @classmethod
    def of(cls, text: str) -> "Fact":
        """Parse a fact such as ``f 2 -> 3``; BadInput if the text is not a fact."""
        before, arrow, after = text.partition(ARROW)
        premises, conclusion = tuple(before.split()), after.split()
        if not arrow or not premises or len(conclusion) != 1 or len({*premises, *conclusion}) != 1 + len(premises):
            raise BadInput(f"fact {text[:80]!r}; expected different tokens, one of them after the arrow: a b -> c")
        return cls(premises, conclusion[0])

    @property
    def tokens(self) -> tuple[str, ...]:
        """All tokens, in the order of the sequence."""
        return (*self.premises, self.conclusion)

    def __str__(self) -> str:
        return f"{' '.join(self.premises)} {ARROW} {self.conclusion}"


@dataclass(frozen=True)
class Facts:
    """A question, and the facts of which some answer it. The query comes after all facts.

    Attributes:
        query: the tokens of the question.
        forms: for every form, its facts in the order of the sequence.
        asked: the token that is the answer.
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
            raise BadInput(f"fact '{twice[0]}' is given twice")
        for form, facts in self.forms.items():
            if len({len(fact.premises) for fact in facts}) > 1:
                raise BadInput(f"the facts of the form {form!r} have different numbers of premises")
            same = [str(fact) for fact in facts if sum(fact.premises == other.premises for other in facts) > 1]
            if same:
                raise BadInput(f"the facts {' and '.join(same[:2])} of the form {form!r} have the same premises")
        leads = {t: [f.conclusion for f in self.facts if t in f.premises] for fact in self.facts for t in fact.tokens}
        try:
            tuple(TopologicalSorter(leads).static_order())
        except CycleError as error:
            raise BadInput(f"the facts form a cycle: {f' {ARROW} '.join(error.args[1][::-1])}") from error
        derived, before = {*self.query}, 0
        while before < len(derived):
            before = len(derived)
            derived |= {fact.conclusion for fact in self.facts if derived.issuperset(fact.premises)}
        if self.asked not in derived.difference(self.query):
            raise BadInput(f"{self.asked!r} is asked; expected a token that follows from the query, and is not in it")

    @property
    def facts(self) -> tuple[Fact, ...]:
        """All facts, in the order of the sequence."""
        return tuple(fact for facts in self.forms.values() for fact in facts)

    @property
    def reader(self) -> str:
        """The role at which the answer is read: the last token of the query."""
        return role("query", self.query[-1])

    @property
    def layout(self) -> Layout:
        """The pieces that each position starts with: its token and the place of its fact; facts of a form are alike."""
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
        """Return the number of layers until the last position of the query knows the answer; None if it never does.

        Every position takes all that it can find, as soon as it can find it (``spread``). Heads without a mask can
        still attend to earlier positions only, so the number without a mask is never above that with the causal mask.
        """
        masks = (True,) if causal else (True, False)
        each = [layers_until(self.layout, self.reader, self.asked, causal=mask) for mask in masks]
        return min((layers for layers in each if layers is not None), default=None)


def role(fact: Fact | str, token: str) -> str:
    """Return the name of the position of a token in a fact."""
    return f"{fact}: {token}"


def load_facts(path: Path | str) -> Facts:
    """Read a question and its facts from YAML.

    Raises:
        BadInput: the file is missing or not YAML, or has no question that its facts answer.
    """
    from pydantic import BaseModel, ValidationError  # slow to import

    class File(BaseModel, extra="forbid"):
        query: list[str]
        asked: str
        facts: dict[str, list[str]]

    try:
        text = read_text(to_path(path), "a question and its facts", LARGEST_FILE)
        read = File.model_validate(parse(text, str(path)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place, said = ".".join(map(str, first["loc"])) or "the file", first["msg"].removesuffix(" or instance of File")
        raise BadInput(f"{path}: {place}: {said}; expected the keys query, asked, facts") from error
    try:
        forms = {form: tuple(map(Fact.of, texts)) for form, texts in read.facts.items()}
        return Facts(tuple(read.query), forms, read.asked)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error

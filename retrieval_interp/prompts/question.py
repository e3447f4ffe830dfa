"""A question in words, with the positions of its symbols, and the Script that writes it."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from string import Formatter
from typing import Any, NamedTuple


class Mark(NamedTuple):
    """The position of a symbol or a line break in a prompt.

    Attributes:
        start: the index of its first character, from 0.
        end: the index after its last character.
        role: its role, such as ``pair1.first``.
        chain: the number of its chain, from 0.
    """

    start: int
    end: int
    role: str
    chain: int


@dataclass(frozen=True)
class Question:
    """A question for a language model (paper, appendix A).

    Attributes:
        formulation: the name of the formulation, such as ``equations``.
        prompt: the whole text, without a line break at its end.
        answer: the right answer.
        acceptable: all acceptable answers, in order; a model is sampled until it gives one of them.
        chain: the symbols from the question to the answer, x0 to xD.
        asked: the number of the chain that is asked about, from 0.
        marks: the positions of the symbols of every chain, in the order of the text.
    """

    formulation: str
    prompt: str
    answer: str
    acceptable: tuple[str, ...]
    chain: tuple[str, ...]
    asked: int
    marks: tuple[Mark, ...]

    @property
    def chance(self) -> float:
        """The accuracy of a model that guesses among the acceptable answers."""
        return 1 / len(self.acceptable)

    def to_json(self) -> dict[str, Any]:
        """Return all fields and the chance level for JSON, marks as ``[start, end, role, chain]``."""
        return {**asdict(self), "chance": self.chance}


class Script:
    """A text that is written line by line and records the positions of its symbols."""

    def __init__(self) -> None:
        self._text, self._marks = "", list[Mark]()

    def line(self, text: str, words: Mapping[str, str], fact: str = "", chain: int | None = None) -> None:
        """Add a line.

        Args:
            text: the line, with a slot for every symbol, such as ``{first} = {second}``.
            words: for every slot, the symbol in its inflected form ("Silvanians" for the kingdom Silvania).
            fact: the fact in the line, such as ``pair1``: its symbols have roles such as ``pair1.first``, and the line
                break after it has the role ``pair1.end``. Without one, the roles are the slots.
            chain: the number of the chain that the line belongs to; without one, nothing is marked.
        """
        self._text += "\n" if self._text else ""
        for fixed, slot, _, _ in Formatter().parse(text):
            self._text += fixed
            if slot is not None:
                self._mark(words[slot], f"{fact}.{slot}" if fact else slot, chain)
                self._text += words[slot]
        if fact:
            self._mark("\n", f"{fact}.end", chain)

    def _mark(self, word: str, role: str, chain: int | None) -> None:
        start = len(self._text)
        if chain is not None:
            self._marks.append(Mark(start, start + len(word), role, chain))

    def question(self, formulation: str, acceptable: Iterable[str], chain: tuple[str, ...], asked: int) -> Question:
        """Return the text as a question whose answer is the end of the chain."""
        return Question(formulation, self._text, chain[-1], tuple(acceptable), chain, asked, tuple(self._marks))

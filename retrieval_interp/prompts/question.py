"""A question in words, with the places of its symbols; and the text it is put together from."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mention:
    """A symbol as it stands in a line.

    Attributes:
        text: the word, in the form that the line needs ("Silvanians" for the kingdom Silvania).
        role: what it does there, such as ``pair1.first``.
        chain: whose it is, counted from 0.
    """

    text: str
    role: str
    chain: int


@dataclass(frozen=True)
class Mark:
    """Where a symbol stands in a prompt.

    Attributes:
        start: its first character, counted from 0.
        end: one past its last.
        role: what it does there.
        chain: whose it is, counted from 0.
    """

    start: int
    end: int
    role: str
    chain: int


@dataclass(frozen=True)
class Question:
    """A question as a language model is asked it (paper, appendix A).

    Attributes:
        formulation: its name, such as ``equations``.
        prompt: the whole text, without a line break at its end.
        answer: the correct one.
        acceptable: every answer that is not incoherent, in order; sampling is repeated until one of them comes.
        chain: the symbols that lead from the question to the answer, x0 to xD.
        asked: which of the chains that is, counted from 0.
        marks: where the symbols of every chain stand, in the order of the text.
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
        """The share of right answers of who guesses among the acceptable ones."""
        return 1 / len(self.acceptable)

    def to_json(self) -> dict[str, Any]:
        """Everything, with the chance level; the marks as ``[start, end, role, chain]``."""
        return {
            "formulation": self.formulation,
            "prompt": self.prompt,
            "answer": self.answer,
            "acceptable": list(self.acceptable),
            "chance": self.chance,
            "chain": list(self.chain),
            "asked": self.asked,
            "marks": [[mark.start, mark.end, mark.role, mark.chain] for mark in self.marks],
        }


class Script:
    """A text that is written line by line, and knows where its mentions came to stand."""

    def __init__(self) -> None:
        self._text, self._marks = "", list[Mark]()

    def line(self, *pieces: str | Mention, fact: str = "", chain: int = 0) -> None:
        """Add a line.

        Args:
            pieces: words, and mentions of symbols.
            fact: whose line it is, such as ``pair1``: the line break at its end then has a role, ``pair1.end``.
            chain: whose fact it is.
        """
        if self._text:
            self._text += "\n"
        for piece in pieces:
            start = len(self._text)
            self._text += piece if isinstance(piece, str) else piece.text
            if isinstance(piece, Mention):
                self._marks.append(Mark(start, len(self._text), piece.role, piece.chain))
        if fact:
            self._marks.append(Mark(len(self._text), len(self._text) + 1, f"{fact}.end", chain))

    def question(self, formulation: str, acceptable: Iterable[str], chain: tuple[str, ...], asked: int) -> Question:
        """What was written, as a question whose answer is the end of the chain."""
        return Question(formulation, self._text, chain[-1], tuple(acceptable), chain, asked, tuple(self._marks))

"""A question in words, with the positions of its symbols, and the Script that writes it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Mention:
    """A symbol in a line.

    Attributes:
        text: the word in its inflected form ("Silvanians" for the kingdom Silvania).
        role: the role of the symbol, such as ``pair1.first``.
        chain: the number of its chain, from 0.
    """

    text: str
    role: str
    chain: int


@dataclass(frozen=True)
class Mark:
    """The position of a symbol or a line break in a prompt.

    Attributes:
        start: the index of its first character, from 0.
        end: the index after its last character.
        role: its role.
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
        """Return all fields and the chance level as plain values, marks as ``[start, end, role, chain]``."""
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
    """A text that is written line by line and records the positions of its mentions."""

    def __init__(self) -> None:
        self._text, self._marks = "", list[Mark]()

    def line(self, *pieces: str | Mention, fact: str = "", chain: int = 0) -> None:
        """Add a line.

        Args:
            pieces: words, and mentions of symbols.
            fact: the fact in the line, such as ``pair1``; the line break after it then has a role, ``pair1.end``.
            chain: the number of the fact's chain.
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
        """Return the text as a question whose answer is the end of the chain."""
        return Question(formulation, self._text, chain[-1], tuple(acceptable), chain, asked, tuple(self._marks))

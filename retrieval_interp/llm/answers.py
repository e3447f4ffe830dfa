"""What counts as an answer."""

from collections.abc import Sequence
from string import punctuation

AROUND = punctuation + "“”‘’«»…" + " \t\r\n"


def normalise(text: str) -> str:
    """An answer without its case and without what stands around it: white space, punctuation, quotation marks.

    Nothing is searched for inside: "Berlin." and "**berlin**" are Berlin, "It is Berlin" is no answer.
    """
    return text.strip(AROUND).casefold()


def accepted(text: str, acceptable: Sequence[str]) -> str | None:
    """The acceptable answer that a text is, None where it is none."""
    return {normalise(answer): answer for answer in acceptable}.get(normalise(text))

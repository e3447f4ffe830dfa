"""What counts as an answer."""

import unicodedata
from collections.abc import Sequence

MEANT = (
    "-\u2013%\u2030/"  # punctuation that belongs to a number: minus, also as a dash, per cent, per mille, a fraction
)


def normalise(text: str) -> str:
    """An answer without its case and without what stands around it: white space, punctuation, quotation marks.

    Nothing is searched for inside: "Berlin." and "**berlin**" are Berlin, "It is Berlin" is no answer. Signs that
    change a number stay: "-1", "1%", "1/" and ".1" are not 1.
    """
    start, end = 0, len(text)
    while start < end and _around(text[start]) and not (text[start] == "." and text[start + 1 : start + 2].isdigit()):
        start += 1
    while start < end and _around(text[end - 1]):
        end -= 1
    return text[start:end].casefold()


def _around(character: str) -> bool:
    kind = unicodedata.category(character)[0]
    return character == "`" or character.isspace() or (kind in "PZ" and character not in MEANT)


def accepted(text: str, acceptable: Sequence[str]) -> str | None:
    """The acceptable answer that a text is, None where it is none."""
    return {normalise(answer): answer for answer in acceptable}.get(normalise(text))

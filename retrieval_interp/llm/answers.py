"""Which answers are acceptable."""

import unicodedata
from collections.abc import Sequence

MEANT = "-\u2013%\u2030/"  # punctuation that changes a number: minus, en dash, per cent, per mille, slash


def normalise(text: str) -> str:
    """Return a text in lower case without surrounding white space, punctuation and quotation marks.

    Nothing inside the text is removed: "Berlin." and "**berlin**" become "berlin", "It is Berlin" does not. Signs that
    change a number stay: "-1", "1%", "1/" and ".1" do not become "1".
    """
    start, end = 0, len(text)
    while start < end and _removable(text[start]):
        if text[start] == "." and text[start + 1 : start + 2].isdigit():
            break
        start += 1
    while start < end and _removable(text[end - 1]):
        end -= 1
    return text[start:end].casefold()


def _removable(character: str) -> bool:
    """Whether a character around an answer is removed."""
    kind = unicodedata.category(character)[0]
    return character == "`" or character.isspace() or (kind in "PZ" and character not in MEANT)


def accepted(text: str, acceptable: Sequence[str]) -> str | None:
    """Return the acceptable answer that equals a text after normalisation; None if there is none."""
    return {normalise(answer): answer for answer in acceptable}.get(normalise(text))

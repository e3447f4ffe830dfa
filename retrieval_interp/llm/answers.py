"""Which answers are acceptable."""

import unicodedata
from collections.abc import Sequence

MEANT = "-\u2013%\u2030/"  # punctuation that changes a number: minus, en dash, per cent, per mille, slash


def normalise(text: str) -> str:
    """Return a text in lower case without surrounding white space, punctuation and quotation marks.

    Nothing inside the text is removed: "Berlin." and "**berlin**" become "berlin", "It is Berlin" does not. Signs that
    change a number stay: "-1", "1%", "1/" and ".1" do not become "1".
    """
    removed = [c == "`" or c.isspace() or (unicodedata.category(c)[0] in "PZ" and c not in MEANT) for c in text]
    if all(removed):
        return ""
    start, end = removed.index(False), len(text) - removed[::-1].index(False)
    decimal = start and text[start - 1] == "." and text[start].isdigit()
    return text[start - 1 if decimal else start : end].casefold()


def accepted(text: str, acceptable: Sequence[str]) -> str | None:
    """Return the acceptable answer that equals a text after normalisation; None if there is none."""
    return {normalise(answer): answer for answer in acceptable}.get(normalise(text))

"""The errors for input that cannot be used."""

import math
import operator
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


class BadInput(ValueError):
    """Input that cannot be used. The message is one line that names the offending thing and what was expected.

    The command line prints the message and exits with code 2.
    """

    def __init__(self, message: str) -> None:
        """Join the lines of the message; messages of libraries often have several."""
        super().__init__(" ".join(message.split()))


class Unsolved(BadInput):
    """The model does not solve its task, so it has no circuit to discover."""


def whole(what: str, value: object, least: int | None = None, most: int | None = None) -> int:
    """Return an integer of any library (Python, NumPy, PyTorch) as a Python integer; ``what`` names it in the message.

    Raises:
        BadInput: the value is not a whole number (a truth value is none), or is out of range.
    """
    number = value if type(value) is int else _as_index(value)
    if number is None or (least is not None and number < least) or (most is not None and number > most):
        low = "" if least is None else f" from {least}"
        raise BadInput(f"{what} is {value!r:.60}; expected a whole number{low}{'' if most is None else f' to {most}'}")
    return number


def _as_index(value: object) -> int | None:
    if isinstance(value, bool) or "bool" in str(getattr(value, "dtype", "")):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):  # PyTorch raises all of them
        return None


def real(what: str, value: object, above: float = -math.inf) -> float:
    """Return a number of any library as a Python float; ``what`` names it in the message.

    Raises:
        BadInput: the value is not a single number, is NaN or infinite, or is not above the given number.
    """
    number = math.nan
    if not isinstance(value, bool | str | bytes) and "bool" not in str(getattr(value, "dtype", "")):
        with suppress(TypeError, ValueError, RuntimeError):
            number = float(value)  # type: ignore[arg-type]
    if not math.isfinite(number) or number <= above:
        raise BadInput(f"{what} is {value!r:.60}; expected a number{'' if above == -math.inf else f' above {above:g}'}")
    return number


def text(what: str, value: object) -> str:
    """Return a text that can be saved as UTF-8; ``what`` names it in the message.

    Raises:
        BadInput: it is no text, or has half of a surrogate pair.
    """
    if not isinstance(value, str) or value != value.encode(errors="replace").decode():
        raise BadInput(f"{what} is {value!r:.60}; expected text that can be saved")
    return value


def plain(what: str, value: object) -> Any:
    """Return data as JSON can hold it: numbers of any library as Python's, tuples as lists, keys as texts.

    Raises:
        BadInput: something else is in it, or a number is NaN or infinite.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return text(what, value)
    if "bool" in str(getattr(value, "dtype", "")) and getattr(value, "ndim", 1) == 0:
        return bool(value)
    if isinstance(value, Mapping):
        if len({*map(str, value)}) < len(value):
            raise BadInput(f"{what} has two keys that are one in a file: {[*value]!r:.60}; expected texts")
        return {str(key): plain(f"{what}, {key}", held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [plain(what, held) for held in value]
    try:
        return real(what, value) if (number := _as_index(value)) is None else number
    except BadInput:
        expected = "numbers, texts, truth values, and lists and mappings of them"
        raise BadInput(f"{what} is {value!r:.60}; expected {expected}") from None

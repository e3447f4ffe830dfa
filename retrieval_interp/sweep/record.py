"""Dataclasses of plain values read from JSON, every value checked."""

import json
import sys
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")
LARGEST = sys.float_info.max


def record_of(kind: type[Record], text: str) -> Record:
    """The record that a text of JSON holds.

    Args:
        kind: a dataclass whose fields are texts, numbers, truths, tables of these, or None.
        text: of the file.

    Raises:
        ValueError: it is no JSON, or a field is missing, unknown, or of another kind than expected.
    """
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    hints = get_type_hints(kind)
    if not isinstance(document, dict):
        raise ValueError(f"expected an object with {', '.join(hints)}")
    for name, value in document.items():
        if name not in hints:
            raise ValueError(f"unknown field {name!r}")
        if not _fits(value, hints[name]):
            raise ValueError(f"{name} is {value!r:.80}")
    try:
        return kind(**document)
    except TypeError as error:  # a field is missing
        raise ValueError(str(error)) from error


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is dict:
        of_key, of_value = get_args(hint)
        return isinstance(value, dict) and all(_fits(k, of_key) and _fits(v, of_value) for k, v in value.items())
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST  # NaN is not
    if hint is int:
        return type(value) is int and abs(value) < 2**53
    if hint is str:
        return isinstance(value, str) and value.encode(errors="ignore").decode() == value  # no halves of characters
    return value is None if hint is NoneType else type(value) is hint

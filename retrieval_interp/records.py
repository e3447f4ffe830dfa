"""Dataclasses of plain values read from JSON; pydantic checks every value."""

from typing import Any, TypeVar

Record = TypeVar("Record")


def record_of(kind: type[Record], text: str) -> Record:
    """The record that a text of JSON holds.

    Args:
        kind: a dataclass of texts, numbers, truths, tables of these, or None.
        text: of the file.

    Raises:
        ValueError: it is no JSON, or a field is missing, unknown, or of another kind than expected.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # takes a moment

    as_config: Any = kind
    as_config.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error

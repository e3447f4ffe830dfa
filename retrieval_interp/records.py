"""Dataclasses of plain values, read from JSON and checked by pydantic."""

from typing import Any, TypeVar

Record = TypeVar("Record")


def record_of(kind: type[Record], text: str) -> Record:
    """Return the record in a JSON text.

    Args:
        kind: a dataclass whose fields are strings, numbers, booleans, None, or tables of these.
        text: the JSON text.

    Raises:
        ValueError: the text is not JSON, or a field is missing, unknown, or of the wrong type.
    """
    from pydantic import ConfigDict, TypeAdapter, ValidationError  # slow to import

    as_config: Any = kind
    as_config.__pydantic_config__ = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{place}: {first['msg']}" if place else first["msg"]) from error

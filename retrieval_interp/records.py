"""Records of plain values, checked by pydantic where they are made and where they are read from JSON."""

from functools import wraps
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from circuits.errors import BadInput, plain

Record = TypeVar("Record")
CHECKED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
Size = Annotated[int, Field(ge=1, le=2**16)]  # of a part of a transformer


@dataclass_transform(frozen_default=True)
def record(kind: type[Record]) -> type[Record]:
    """Make a class a frozen dataclass that refuses a wrong or unknown value with a BadInput."""
    checked: Any = dataclass(frozen=True, config=CHECKED)(kind)
    make = checked.__init__

    @wraps(make)
    def init(self: Any, *values: Any, **named: Any) -> None:
        numbers = {name: plain(name, value) for name, value in named.items()}  # of any library
        try:
            make(self, *(plain("a value", value) for value in values), **numbers)
        except ValidationError as error:
            raise BadInput(first_error(error)) from None

    checked.__init__ = init
    return checked


def first_error(error: ValueError) -> str:
    """Return an error in one line; of those of pydantic the first: the field, its value, and what it should be."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place, value = ".".join(map(str, first["loc"])), first["input"]
    said = f" is {value!r:.60}" if isinstance(value, str | int | float | None) else ""
    expected = first["msg"].removeprefix("Value error, ")
    return f"{place}{said}: {expected}" if place else expected

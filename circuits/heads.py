"""Heads, counted from 0 as in TransformerLens; written ``L5H0``."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import GetCoreSchemaHandler

from circuits.errors import BadInput, whole
from circuits.results import as_text

MOST = 999_999  # the largest number of a layer or a head, in names and in files


class _Place(NamedTuple):
    layer: int
    index: int  # type: ignore[assignment]  # of the head in its layer; not tuple.index


class Head(_Place):
    """A head, counted from 0 as in TransformerLens; written ``L5H0``. Integers may be of any library."""

    __slots__ = ()

    def __new__(cls, layer: Any, index: Any) -> Head:
        """Make a head from two integers; BadInput if one of them is not a whole number from 0 to ``MOST``."""
        return super().__new__(cls, whole("a layer", layer, 0, MOST), whole("a head", index, 0, MOST))

    @classmethod
    def of(cls, given: Any) -> Head:
        """Return a head, given as ``L5H0`` or as a pair of integers; BadInput if it is neither."""
        if type(given) is cls:
            return given
        if isinstance(given, str):
            if match := re.fullmatch(r"L([0-9]{1,6})H([0-9]{1,6})", given):
                return cls(int(match[1]), int(match[2]))
            raise BadInput(f"{given!r} is not a head; expected a name such as L5H0, counted from 0")
        try:
            layer, index = given
        except (TypeError, ValueError):
            raise BadInput(f"{given!r:.60} is not a head; expected a name such as L5H0, or (5, 0)") from None
        return cls(layer, index)

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Results hold a head as text, ``L5H0``."""
        return as_text(handler, cls, cls.of)


def check_choice(layer: int | None, head: int | None, n_layers: int, n_heads: int) -> None:
    """Check the choice of a layer and of a head in it; None stands for all.

    Raises:
        BadInput: the model has no such layer or head, or a head is given without its layer.
    """
    if head is not None and layer is None:
        raise BadInput(f"head {head} is given without a layer; expected both")
    for name, number, n in (("layer", layer, n_layers), ("head", head, n_heads)):
        if number is not None:
            whole(f"the {name}", number, 0, n - 1)

"""Heads and their mechanisms, stored by layer, so that circuits that differ in one head share all other layers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import GetCoreSchemaHandler

from circuits.errors import BadInput, whole
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import SIMPLE, Mechanism, checked_pattern
from circuits.mechanisms.one_hot import OneHot
from circuits.results import as_text
from circuits.roles import Roles
from circuits.utils.lazy import torch

MOST = 999_999  # the largest number of a layer or a head, in names and in files


class _Place(NamedTuple):
    layer: int
    index: int  # type: ignore[assignment]  # of the head in its layer; not tuple.index


class Head(_Place):
    """A head, counted from 0 as in TransformerLens; written ``L5H0``. Integers may be of any library."""

    __slots__ = ()

    def __new__(cls, layer: Any, index: Any) -> Head:
        """Make a head from two integers.

        Raises:
            BadInput: one of them is not a whole number from 0 to ``MOST``.
        """
        return super().__new__(cls, whole("a layer", layer, 0, MOST), whole("a head", index, 0, MOST))

    @classmethod
    def of(cls, given: Any) -> Head:
        """Return a head, given as ``L5H0`` or as a pair of integers.

        Raises:
            BadInput: it is neither.
        """
        if isinstance(given, str):
            return cls.parse(given)
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

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read ``L5H0``."""
        match = re.fullmatch(r"L([0-9]{1,6})H([0-9]{1,6})", text)
        if match is None:
            raise BadInput(f"{text!r} is not a head; expected a name such as L5H0, counted from 0")
        return cls(int(match[1]), int(match[2]))


def head_pattern(
    head: Head, mechanism: Mechanism, roles: Roles, n_positions: int
) -> Float[torch.Tensor, "#batch query key"]:
    """Return the pattern that a mechanism gives a head, checked; the roles are those of its layer.

    Raises:
        BadInput: as ``checked_pattern``; the message begins with the head.
    """
    try:
        return checked_pattern(mechanism, roles, n_positions)
    except BadInput as error:
        raise BadInput(f"{head}: {error}") from error


def check_choice(layer: int | None, head: int | None, n_layers: int, n_heads: int) -> None:
    """Check the choice of a layer and of a head in it; None stands for all.

    Raises:
        BadInput: the model has no such layer or head, or a head is given without its layer.
    """
    if head is not None and layer is None:
        raise BadInput(f"head {head} is given without a layer; expected both")
    for name, number, n in (("layer", layer, n_layers), ("head", head, n_heads)):
        if number is not None:
            check_number(name, number, n)


def check_number(name: str, number: object, n: int) -> None:
    """Check an index; there are ``n`` things of this name, counted from 0.

    Raises:
        BadInput: the number is not a whole number from 0 to n - 1.
    """
    if not 0 <= whole(name, number) < n:
        raise BadInput(f"there is no {name} {number!r}; there are {n}, counted from 0")


class Layer(tuple[tuple[int, Mechanism], ...]):
    """The named heads of a layer with their mechanisms, in order."""

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __getstate__(self) -> None:
        """Keep the hash, which differs from process to process, out of pickles."""

    @cached_property
    def digest(self) -> str:
        """A hash of the heads and mechanisms; equal layers have the same hash in every process."""
        return _digest([(index, mechanism.specification) for index, mechanism in self])


def _mechanism(head: Head, given: Mechanism | str | Mapping[str, str] | torch.Tensor | np.ndarray) -> Mechanism:
    """Return a mechanism, given by itself, by its name, its paths, or its pattern."""
    if isinstance(given, Mechanism):
        return given
    if isinstance(given, str) and given in SIMPLE:
        return SIMPLE[given]
    if isinstance(given, Mapping):
        return OneHot(given)
    if isinstance(given, str) or not hasattr(given, "shape"):
        names = ", ".join(SIMPLE)
        raise BadInput(f"{head} is {given!r:.60}; expected a mechanism, {names}, paths, or a pattern [query, key]")
    return FixedPattern(given)


class Heads(Mapping[Head, Mechanism]):
    """An immutable mapping from heads to mechanisms, from the lowest layer up."""

    def __init__(self, heads: Mapping[Any, Mechanism | str | Mapping[str, str] | torch.Tensor | np.ndarray]) -> None:
        if not isinstance(heads, Mapping):
            raise BadInput(f"the heads of a circuit are {heads!r:.60}; expected a mapping: {{'L0H0': 'uniform'}}")
        parsed: dict[Head, Any] = {}
        for given, own in heads.items():
            head = Head.of(given)
            if head in parsed:
                raise BadInput(f"{head} is given twice")
            parsed[head] = own
        found: dict[int, list[tuple[int, Mechanism]]] = {}
        for head in sorted(parsed):
            found.setdefault(head.layer, []).append((head.index, _mechanism(head, parsed[head])))
        self._layers = {layer: Layer(own) for layer, own in found.items()}

    @classmethod
    def _of(cls, layers: Iterable[tuple[int, Layer]]) -> Heads:
        made = cls({})
        made._layers = {layer: own for layer, own in sorted(layers) if own}
        return made

    def layer(self, layer: Any) -> Layer:
        """Return the named heads of one layer."""
        return self._layers.get(whole("a layer", layer), UNNAMED)

    @property
    def layers(self) -> Mapping[int, Layer]:
        """The named heads of every layer that has some."""
        return self._layers

    def replaced(self, head: Any, mechanism: Mechanism) -> Heads:
        """Return the heads with another mechanism for one of them."""
        head = Head.of(head)
        own = dict(self.layer(head[0])) | {head[1]: mechanism}
        return self._of({**self._layers, head[0]: Layer(sorted(own.items(), key=lambda item: item[0]))}.items())

    def without(self, heads: Iterable[Any]) -> Heads:
        """Return all but some heads."""
        gone: dict[int, set[int]] = {}
        for layer, index in map(Head.of, heads):
            gone.setdefault(layer, set()).add(index)
        fewer = {layer: Layer(item for item in self.layer(layer) if item[0] not in own) for layer, own in gone.items()}
        return self._of({**self._layers, **fewer}.items())

    def up_to(self, layer: Any) -> Heads:
        """Return the heads of this layer and the layers below."""
        layer = whole("a layer", layer)
        return self._of(item for item in self._layers.items() if item[0] <= layer)

    @cached_property
    def digest(self) -> str:
        """A hash of all heads and mechanisms; equal heads have the same hash in every process."""
        return _digest([(layer, own.digest) for layer, own in self._layers.items()])

    def __getitem__(self, head: Any) -> Mechanism:
        head = Head.of(head)
        for index, mechanism in self.layer(head[0]):
            if index == head[1]:
                return mechanism
        raise KeyError(head)

    def __iter__(self) -> Iterator[Head]:
        return (Head(layer, index) for layer, own in self._layers.items() for index, _ in own)

    def __len__(self) -> int:
        return sum(map(len, self._layers.values()))

    def __eq__(self, other: object) -> bool:
        return self._layers == other._layers if isinstance(other, Heads) else super().__eq__(other)

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self._layers.items()))

    def __getstate__(self) -> dict[str, Any]:
        """Keep the hash, which differs from process to process, out of pickles."""
        return {"_layers": self._layers}

    def __repr__(self) -> str:
        return repr(dict(self))


UNNAMED = Layer()
NO_HEADS = Heads({})


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()

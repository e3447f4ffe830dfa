"""Circuits: a hypothesis about a transformer's attention, head by head."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
from pydantic import GetCoreSchemaHandler

from circuits.errors import BadInput, text, whole
from circuits.heads import Head
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import NAMED, PREVIOUS, ROWS, Intact, Mechanism
from circuits.mechanisms.one_hot import POSITION, Condition, OneHot, is_role
from circuits.mechanisms.soft import Soft
from circuits.results import as_text
from circuits.roles import Roles
from circuits.utils.lazy import torch

# All that can stand for a mechanism.
Given: TypeAlias = "Mechanism | str | Mapping[str, str] | torch.Tensor | np.ndarray"
Layer: TypeAlias = tuple[tuple[int, Mechanism], ...]  # the named heads of a layer, in order


@dataclass(frozen=True, order=True)
class AttentionPath:
    """One attention path: in this head, the role ``source`` attends to the role ``target``.

    A ``Previous`` head is one path from every position (``*``) to the position before (``previous``).

    Attributes:
        head: the head.
        source: the role that attends.
        target: the role that it attends to.
        condition: the instances on which the path holds, if a circuit gave the path; it does not count for equality,
            and texts do not have it. None for all instances, and for a default row.
    """

    head: Head
    source: str
    target: str
    condition: Condition | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.head) is not Head:
            object.__setattr__(self, "head", Head.of(self.head))

    @property
    def joins_roles(self) -> bool:
        """Whether the path leads from a role to a role."""
        return self.source != PREVIOUS[0] and is_role(self.target)

    def __str__(self) -> str:
        return f"{self.head} {self.source} -> {self.target}"

    @classmethod
    def parse(cls, text: str) -> AttentionPath:
        """Read ``L5H0 query -> pair2.second``; BadInput if the text is not a head and two roles."""
        head, _, ends = str(text).partition(" ")
        source, arrow, target = ends.partition(" -> ")
        if not arrow:
            raise BadInput(f"{text!r:.60} is not a path; expected a head and two roles: L5H0 role -> role")
        return cls(Head.of(head), source, target)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Results hold a path as text."""
        return as_text(handler, cls, cls.parse)


class Heads(Mapping[Head, Mechanism]):
    """The heads of a circuit, which do not change; a head may also be asked for as ``L5H0``."""

    def __init__(self, heads: Iterable[tuple[Head, Mechanism]]) -> None:
        self._heads = dict(heads)

    def __getitem__(self, head: Any) -> Mechanism:
        try:
            return self._heads[Head.of(head) if isinstance(head, str) else head]
        except BadInput:
            raise KeyError(head) from None

    def __iter__(self) -> Iterator[Head]:
        return iter(self._heads)

    def __len__(self) -> int:
        return len(self._heads)

    def __repr__(self) -> str:
        return repr(self._heads)


@dataclass(frozen=True)
class Circuit:
    """A hypothesis: a mechanism for each named head. All other heads are intact.

    Attributes:
        heads: the mechanism of each named head, from the lowest layer up.
        name: the name of the circuit.
        description: one or two sentences about the circuit.
        origin: the source of each head and path, such as "circuit.yaml, line 7", for error messages.
    """

    heads: Mapping[Head, Mechanism]
    name: str = field(default="", compare=False)
    description: str = field(default="", compare=False)
    origin: Mapping[Head | AttentionPath, str] = field(default_factory=dict, compare=False, repr=False)

    def __init__(
        self,
        heads: Mapping[Any, Given] = MappingProxyType({}),
        name: str = "",
        description: str = "",
        origin: Mapping[Head | AttentionPath, str] = MappingProxyType({}),
    ) -> None:
        """Make a circuit; a mechanism may be its name, a mapping of paths (``{"query": "key"}``), or a pattern.

        Raises:
            BadInput: a head or a mechanism cannot be one, or a head is given twice.
        """
        if not isinstance(heads, Mapping):
            raise BadInput(f"the heads of a circuit are {heads!r:.60}; expected a mapping: {{'L0H0': 'uniform'}}")
        made: dict[Head, Mechanism] = {}
        for given, mechanism in heads.items():
            head = Head.of(given)
            if head in made:
                raise BadInput(f"{head} is given twice")
            made[head] = _mechanism(head, mechanism)
        name, description = text("the name of a circuit", name), text("the description of a circuit", description)
        in_order = Heads(sorted(made.items(), key=lambda item: item[0]))
        vars(self).update(heads=in_order, name=name, description=description, origin=origin)

    def __hash__(self) -> int:
        return hash(tuple(self.heads.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return Circuit, (dict(self.heads), self.name, self.description)

    @cached_property
    def layers(self) -> Mapping[int, Layer]:
        """The heads of every layer that are replaced or idle, with their mechanisms; none that is named intact."""
        layers: dict[int, Layer] = {}
        for head, mechanism in self.heads.items():
            if mechanism != Intact():
                layers[head.layer] = (*layers.get(head.layer, ()), (head.index, mechanism))
        return layers

    def layer(self, layer: Any) -> Layer:
        """Return the heads of one layer that are replaced or idle, with their mechanisms."""
        return self.layers.get(whole("a layer", layer), ())

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of what is replaced, without name and description; the same in every process.

        Heads that are named intact do not count: the model computes the same without their names.
        """
        return _digest([(layer, _layer_digest(heads)) for layer, heads in self.layers.items()])

    @cached_property
    def paths(self) -> tuple[AttentionPath, ...]:
        """All attention paths, from the lowest layer up; a ``Previous`` head counts as one path."""
        return tuple(
            AttentionPath(head, *ends, dict(mechanism.where).get(ends))
            for head, mechanism in self.heads.items()
            for ends in mechanism.paths
        )

    @cached_property
    def removable(self) -> tuple[AttentionPath, ...]:
        """The rows that step 6 removes, one at a time: all paths, and rows to a fixed position under a condition."""
        rows = ((head, *row) for head, mechanism in self.heads.items() for row in mechanism.where)
        fixed = (AttentionPath(head, *ends, on) for head, ends, on in rows if POSITION.fullmatch(ends[1]))
        return (*self.paths, *fixed)

    @property
    def looking(self) -> tuple[Head, ...]:
        """The heads that look at content: they have paths, or are named intact."""
        return tuple(head for head, mechanism in self.heads.items() if mechanism.varies)

    @property
    def heads_with_paths(self) -> tuple[Head, ...]:
        """The heads with at least one path."""
        return tuple(dict.fromkeys(path.head for path in self.paths))

    def up_to(self, layer: Any) -> Circuit:
        """Return the circuit of this layer and those below; the heads above are intact."""
        last = whole("a layer", layer)
        return Circuit({head: mechanism for head, mechanism in self.heads.items() if head.layer <= last})

    def with_head(self, head: Any, mechanism: Given) -> Circuit:
        """Return the circuit with another mechanism for one head."""
        return Circuit({**self.heads, Head.of(head): mechanism}, self.name, self.description)

    def without_heads(self, heads: Iterable[Any]) -> Circuit:
        """Return the circuit without some heads, which are then intact."""
        kept = {head: self.heads[head] for head in self.heads.keys() - map(Head.of, heads)}
        return Circuit(kept, self.name, self.description)

    def without(self, path: AttentionPath, instead: str = "uniform") -> Circuit:
        """Return the circuit without one path of ``removable``; the row of its source becomes ``instead``.

        This is ``uniform`` or ``identity`` (or ``previous``, or ``zero``); a soft head only loses the weight.

        Raises:
            BadInput: the circuit has no such path, or ``instead`` is not the name of a row.
        """
        if instead not in ROWS:
            raise BadInput(f"the row of {path} cannot become {instead!r}; expected one of {', '.join(ROWS)}")
        if isinstance(self.heads.get(path.head), OneHot):
            return self.retargeted(path, instead)
        if path not in self.removable:
            raise BadInput(f"the circuit has no path {path}")
        own = self.heads[path.head]
        emptied = own.without_row(path.source, path.target) if isinstance(own, Soft) else ROWS[instead]
        return self.with_head(path.head, emptied)

    def retargeted(self, path: AttentionPath, target: str) -> Circuit:
        """Return the circuit with another target for one path of a one-hot head.

        Raises:
            BadInput: the circuit has no such path, or its head is not one-hot.
        """
        mechanism = self.heads.get(path.head)
        if path not in self.removable or not isinstance(mechanism, OneHot):
            raise BadInput(f"the circuit has no path {path} of a one-hot head; no other path can be retargeted")
        return self.with_head(path.head, mechanism.with_row(path.source, target, path.target))

    def check(self, roles: Roles | Sequence[str], n_layers: int, n_heads: int) -> None:
        """Check that the circuit fits a model and its examples; of roles by name, only that they exist.

        Raises:
            BadInput: a head is out of range, a role is unknown, or a path points to a later position or, if the roles
                have the windows of the model's layers, out of its layer's window.
        """
        check_all([self], roles, n_layers, n_heads)

    def _check_head(self, head: Head, roles: Roles | Sequence[str], n_layers: int, n_heads: int) -> None:
        mechanism = self.heads[head]
        if head.layer >= n_layers:
            raise BadInput(f"{self._at(head)}{head} does not exist: the model has layers 0 to {n_layers - 1}")
        if head.index >= n_heads:
            raise BadInput(f"{self._at(head)}{head} does not exist: a layer has heads 0 to {n_heads - 1}")
        names = roles.names if isinstance(roles, Roles) else roles
        for ends in mechanism.rows if isinstance(mechanism, OneHot) else mechanism.paths:
            path = AttentionPath(head, *ends)
            for role in ends if ends != PREVIOUS else ():
                if role not in names and (role == path.source or is_role(role)):
                    known = ", ".join(names)
                    raise BadInput(f"{self._at(path)}{head} names the unknown role {role!r}; the roles are {known}")
            if isinstance(roles, Roles) and isinstance(mechanism, OneHot):
                try:
                    there = mechanism.holds(*ends, roles)
                except BadInput as error:
                    raise BadInput(f"{self._at(path)}{head}: {error}") from None
                if roles.causal and is_role(path.target) and (there & (roles[path.target] > roles[path.source])).any():
                    later = f"{path.target!r} comes after {path.source!r}"
                    raise BadInput(f"{self._at(path)}{path} is against the causal mask: {later}")
        if isinstance(roles, Roles) and isinstance(mechanism, OneHot):
            for ends in mechanism.out_of_window(roles.in_layer(head.layer)):
                path, window = AttentionPath(head, *ends), roles.windows[head.layer]
                raise BadInput(f"{self._at(path)}{path} leaves the window of {window} positions of layer {head.layer}")

    def _at(self, what: Head | AttentionPath) -> str:
        return f"{self.origin[what]}: " if what in self.origin else ""


def role_paths(circuit: Circuit) -> tuple[AttentionPath, ...]:
    """Return all paths of a circuit that lead from a role to a role; BadInput if there is none."""
    paths = tuple(path for path in circuit.paths if path.joins_roles)
    if not paths:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    return paths


def check_all(circuits: Iterable[Circuit], roles: Roles | Sequence[str], n_layers: int, n_heads: int) -> None:
    """Check that circuits fit a model and its examples; a head that is the same in many circuits is checked once;
    BadInput if as ``Circuit.check``.
    """
    fitting: set[tuple[Head, Mechanism]] = set()
    for circuit in circuits:
        for head in (item for item in circuit.heads.items() if item not in fitting):
            circuit._check_head(head[0], roles, n_layers, n_heads)
            fitting.add(head)


def _mechanism(head: Head, given: Given) -> Mechanism:
    if isinstance(given, Mechanism):
        return given
    if isinstance(given, str) and given in NAMED:
        return NAMED[given]
    if isinstance(given, Mapping):
        return OneHot(given)
    if isinstance(given, str) or not hasattr(given, "shape"):
        names = ", ".join(NAMED)
        raise BadInput(f"{head} is {given!r:.60}; expected a mechanism, {names}, paths, or a pattern [query, key]")
    return FixedPattern(given)


@lru_cache(4096)  # circuits that differ in one head share all other layers
def _layer_digest(heads: Layer) -> str:
    return _digest([(index, mechanism.specification) for index, mechanism in heads])


def _digest(document: object) -> str:
    return hashlib.sha256(json.dumps(document).encode()).hexdigest()

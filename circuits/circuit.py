"""Circuits: a hypothesis about a transformer's attention, head by head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float
from pydantic import GetCoreSchemaHandler

from circuits.errors import BadInput, text
from circuits.heads import NO_HEADS, Head, Heads, Layer
from circuits.mechanisms.mechanism import PREVIOUS, ROWS, Mechanism
from circuits.mechanisms.one_hot import POSITION, Condition, OneHot, is_role
from circuits.results import as_text
from circuits.roles import Roles
from circuits.utils.lazy import torch


@dataclass(frozen=True, order=True)
class AttentionPath:
    """One attention path: in this head, the role ``source`` attends to the role ``target``.

    A ``Previous`` head is one path from every position (``*``) to the position before (``previous``).
    """

    head: Head
    source: str
    target: str

    def __post_init__(self) -> None:
        if type(self.head) is not Head:
            object.__setattr__(self, "head", Head.of(self.head))

    def __str__(self) -> str:
        return f"{self.head} {self.source} -> {self.target}"

    @classmethod
    def parse(cls, text: str) -> AttentionPath:
        """Read ``L5H0 query -> pair2.second``.

        Raises:
            BadInput: the text is not a head and two roles.
        """
        head, _, ends = str(text).partition(" ")
        source, arrow, target = ends.partition(" -> ")
        if not arrow:
            raise BadInput(f"{text!r:.60} is not a path; expected a head and two roles: L5H0 role -> role")
        return cls(Head.parse(head), source, target)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        """Results hold a path as text."""
        return as_text(handler, cls, cls.parse)


@dataclass(frozen=True)
class Circuit:
    """A hypothesis: a mechanism for each named head. All other heads are intact.

    Attributes:
        heads: the mechanism of each named head, such as ``L5H0``: a ``Mechanism``, the name of a simple mechanism, a
            mapping of paths (``{"query": "key"}``), or a pattern ``[query, key]``.
        name: the name of the circuit.
        description: one or two sentences about the circuit.
        origin: the source of each head and path, such as "circuit.yaml, line 7", for error messages.
    """

    heads: Heads
    name: str = field(default="", compare=False)
    description: str = field(default="", compare=False)
    origin: Mapping[Head | AttentionPath, str] = field(default_factory=dict, compare=False, repr=False)

    def __init__(
        self,
        heads: Mapping[Any, Mechanism | str | Mapping[str, str] | torch.Tensor | np.ndarray] = NO_HEADS,
        name: str = "",
        description: str = "",
        origin: Mapping[Head | AttentionPath, str] | None = None,
    ) -> None:
        object.__setattr__(self, "heads", heads if isinstance(heads, Heads) else Heads(heads))
        object.__setattr__(self, "name", text("the name of a circuit", name))
        object.__setattr__(self, "description", text("the description of a circuit", description))
        object.__setattr__(self, "origin", {} if origin is None else origin)

    def __hash__(self) -> int:
        return hash(self.heads)

    @cached_property
    def paths(self) -> tuple[AttentionPath, ...]:
        """All attention paths, from the lowest layer up; a ``Previous`` head counts as one path."""
        return tuple(AttentionPath(head, *ends) for head, mechanism in self.heads.items() for ends in mechanism.paths)

    @cached_property
    def positional_rows(self) -> tuple[AttentionPath, ...]:
        """The rows that lead to a fixed position under a condition, that is, on some instances only."""
        rows = [(head, m) for head, m in self.heads.items() if isinstance(m, OneHot)]
        return tuple(
            AttentionPath(head, *ends) for head, m in rows for ends, _ in m.where if POSITION.fullmatch(ends[1])
        )

    @cached_property
    def removable(self) -> tuple[AttentionPath, ...]:
        """The rows that step 6 removes, one at a time: all paths, and ``positional_rows``."""
        return (*self.paths, *self.positional_rows)

    def circuit_heads(self, roles: Roles, n_positions: int) -> tuple[Head, ...]:
        """Return the heads that make up the circuit in the sense of Wang et al. (2022).

        These are the heads with a path, and the heads whose pattern is not the same in all examples. They are not
        always the *content heads*, which ``content_or_position`` measures.

        Args:
            roles: the roles of the examples.
            n_positions: the length of their sequences.

        Raises:
            BadInput: the circuit does not fit the examples.
        """
        useful = {*self.useful_heads}
        return tuple(h for h, m in self.heads.items() if h in useful or _differs(m.pattern(roles, n_positions)))

    @property
    def useful_heads(self) -> tuple[Head, ...]:
        """The heads with at least one path."""
        return tuple(dict.fromkeys(path.head for path in self.paths))

    def condition(self, path: AttentionPath) -> Condition | None:
        """Return the condition of a path; None for a default row, and for a head that is not one-hot."""
        mechanism = self.heads[path.head]
        return dict(mechanism.where).get((path.source, path.target)) if isinstance(mechanism, OneHot) else None

    @property
    def digest(self) -> str:
        """The SHA-256 of all heads and mechanisms, without name and description; the same in every process."""
        return self.heads.digest

    def layer(self, layer: Any) -> Layer:
        """Return the named heads of one layer with their mechanisms."""
        return self.heads.layer(layer)

    def up_to(self, layer: Any) -> Circuit:
        """Return the circuit of this layer and those below; the heads above are intact."""
        return Circuit(self.heads.up_to(layer))

    def with_head(self, head: Any, mechanism: Mechanism) -> Circuit:
        """Return the circuit with another mechanism for one head."""
        return Circuit(self.heads.replaced(head, mechanism), self.name, self.description)

    def without_heads(self, heads: Iterable[Any]) -> Circuit:
        """Return the circuit without some heads, which are then intact."""
        return Circuit(self.heads.without(heads), self.name, self.description)

    def without(self, path: AttentionPath, instead: str = "uniform") -> Circuit:
        """Return the circuit without one path.

        Args:
            path: one of ``removable``.
            instead: the new row of its source: ``uniform`` or ``identity`` (or ``previous``, or ``zero``).

        Raises:
            BadInput: the circuit has no such path, or ``instead`` is not the name of a row.
        """
        if path not in self.removable:
            raise BadInput(f"the circuit has no path {path}")
        if instead not in ROWS:
            raise BadInput(f"the row of a path cannot become {instead!r}; expected one of {', '.join(ROWS)}")
        mechanism = self.heads[path.head]
        if isinstance(mechanism, OneHot):
            return self.with_head(path.head, mechanism.with_row(path.source, instead, path.target))
        return self.with_head(path.head, ROWS[instead])

    def retargeted(self, path: AttentionPath, target: str) -> Circuit:
        """Return the circuit with another target for one path of a one-hot head.

        Raises:
            BadInput: the circuit has no such path, or its head is not one-hot.
        """
        mechanism = self.heads.get(path.head)
        if path not in self.removable or not isinstance(mechanism, OneHot):
            raise BadInput(f"the circuit has no path {path} of a one-hot head; no other path can be retargeted")
        return self.with_head(path.head, mechanism.with_row(path.source, target, path.target))

    def difference(self, other: Circuit) -> dict[Head, tuple[Mechanism | None, Mechanism | None]]:
        """Return the heads on which two circuits differ, with both mechanisms (None for a head that is not named)."""
        heads = sorted({*self.heads, *other.heads})
        pairs = {head: (self.heads.get(head), other.heads.get(head)) for head in heads}
        return {head: pair for head, pair in pairs.items() if pair[0] != pair[1]}

    def check(self, roles: Roles, n_layers: int, n_heads: int) -> None:
        """Check that the circuit fits a model and its examples.

        Raises:
            BadInput: a head is out of range, a role is unknown, or a path points to a later position or, if the roles
                have the windows of the model's layers, out of its layer's window.
        """
        check_all([self], roles, n_layers, n_heads)

    def check_names(self, roles: Sequence[str], n_layers: int, n_heads: int) -> None:
        """Check that the heads and roles that the circuit names exist, without a model or examples.

        Raises:
            BadInput: a head is out of range, or a role is unknown.
        """
        for layer in self.heads.layers:
            self._check_names(layer, roles, n_layers, n_heads)

    def _check_names(self, layer: int, roles: Sequence[str], n_layers: int, n_heads: int) -> None:
        for index, mechanism in self.layer(layer):
            head = Head(layer, index)
            if not 0 <= head.layer < n_layers:
                raise BadInput(f"{self._at(head)}{head} does not exist: the model has layers 0 to {n_layers - 1}")
            if not 0 <= head.index < n_heads:
                raise BadInput(f"{self._at(head)}{head} does not exist: a layer has heads 0 to {n_heads - 1}")
            for source, target in mechanism.rows if isinstance(mechanism, OneHot) else mechanism.paths:
                if (source, target) == PREVIOUS:
                    continue
                for role in (source, target):
                    if role not in roles and not (role == target and not is_role(role)):
                        place, known = self._at(AttentionPath(head, source, target)), ", ".join(roles)
                        raise BadInput(f"{place}{head} names the unknown role {role!r}; the roles are {known}")

    def _check(self, layer: int, roles: Roles, n_layers: int, n_heads: int) -> None:
        self._check_names(layer, roles.names, n_layers, n_heads)
        roles = roles.in_layer(layer)
        for index, mechanism in self.layer(layer):
            where = dict(mechanism.where) if isinstance(mechanism, OneHot) else {}
            for source, target in mechanism.rows if isinstance(mechanism, OneHot) else ():
                path, condition = AttentionPath(Head(layer, index), source, target), where.get((source, target))
                if condition is not None:
                    try:
                        condition.holds(roles)
                    except BadInput as error:
                        raise BadInput(f"{self._at(path)}{path.head}: {error}") from None
                if roles.causal and is_role(target) and (roles[target] > roles[source]).any():
                    raise BadInput(
                        f"{self._at(path)}{path} is against the causal mask: {target!r} comes after {source!r}"
                    )
            for ends in mechanism.out_of_window(roles) if isinstance(mechanism, OneHot) else ():
                path = AttentionPath(Head(layer, index), *ends)
                raise BadInput(f"{self._at(path)}{path} leaves the window of {roles.window} positions of layer {layer}")

    def _at(self, what: Head | AttentionPath) -> str:
        place = self.origin.get(what)
        return f"{place}: " if place else ""


def _differs(pattern: Float[torch.Tensor, "#batch query key"]) -> bool:
    return bool((pattern != pattern[:1]).any())


def check_all(circuits: Iterable[Circuit], roles: Roles, n_layers: int, n_heads: int) -> None:
    """Check that circuits fit a model and its examples; a layer that many circuits share is checked once.

    Raises:
        BadInput: as ``Circuit.check``.
    """
    fitting: set[tuple[int, Layer]] = set()
    for circuit in circuits:
        for item in circuit.heads.layers.items():
            if item not in fitting:
                circuit._check(item[0], roles, n_layers, n_heads)
                fitting.add(item)

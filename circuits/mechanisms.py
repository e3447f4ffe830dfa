"""Mechanisms: what a head is supposed to do, as an attention pattern (paper, Appendix E).

A mechanism is simple (``Uniform``, ``Identity``, ``Previous``), ``Fixed``: the same numbers in every example, or
``OneHot``: zero except for one 1 where each named role is expected to attend. Rows of a ``OneHot`` may be simple too,
so that single paths can be ablated, and be there under a condition only.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from jaxtyping import Bool, Float

from circuits.errors import BadInput
from circuits.lazy import torch
from circuits.roles import Roles


class Mechanism(ABC):
    """An attention pattern that a head is hypothesised to have."""

    @property
    @abstractmethod
    def name(self) -> str:
        """``uniform``, ``identity``, ``previous`` or ``one_hot``."""

    def __str__(self) -> str:
        return self.name

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """The attention paths that it claims, as (from-role, to-role)."""
        return ()

    @abstractmethod
    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """The attention pattern of every example; the batch is 1 where all examples share it."""


def _device(roles: Roles) -> torch.device:
    return roles.positions.device


@dataclass(frozen=True)
class Uniform(Mechanism):
    """Attend equally to everything that the causal mask allows."""

    name = "uniform"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """1/(p+1) at every key up to the query's position p."""
        seen = torch.ones(n_positions, n_positions, device=_device(roles)).tril()
        return (seen / seen.sum(dim=-1, keepdim=True))[None]


@dataclass(frozen=True)
class Identity(Mechanism):
    """Attend to oneself."""

    name = "identity"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """The identity matrix."""
        return torch.eye(n_positions, device=_device(roles))[None]


@dataclass(frozen=True)
class Previous(Mechanism):
    """Attend to the position before; position 0 attends to itself."""

    name = "previous"

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """One, from every position to the one before."""
        return (("*", "previous"),)

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Ones directly below the diagonal, and one at the first position."""
        pattern = torch.ones(n_positions - 1, device=_device(roles)).diag(-1)
        pattern[0, 0] = 1
        return pattern[None]


@dataclass(frozen=True)
class Zero(Mechanism):
    """Attend to nothing; only as the rows of a ``OneHot`` that lie on no path."""

    name = "zero"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """All zeros."""
        return torch.zeros(1, n_positions, n_positions, device=_device(roles))


SIMPLE: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (Uniform(), Identity(), Previous())}
ROWS: dict[str, Mechanism] = {**SIMPLE, "zero": Zero()}
ELSEWHERE = ("zero", "identity", "uniform")  # what the rows of a one-hot head on no path may be
NO_CONDITIONS: Mapping[tuple[str, str], Condition] = MappingProxyType({})
REPLACEMENTS = ("uniform", "identity")  # what a row becomes when its path is taken away (paper, Appendix E, step 6)


@dataclass(frozen=True, eq=False)
class Fixed(Mechanism):
    """The same attention pattern in every example: what a head does that knows positions and nothing else.

    Attributes:
        weights: how much each query attends to each key, ``[query, key]``; each row sums to 1, or less.
        kind: ``mean`` for a head's average over examples, ``map`` where every query attends to one key, ``given`` for
            any other.
    """

    weights: torch.Tensor
    kind: str = "given"

    def __post_init__(self) -> None:
        weights, n = self.weights, self.weights.shape[0] if self.weights.ndim == 2 else 0
        if weights.shape != (n, n) or not n:
            raise BadInput(f"a fixed pattern of shape {list(weights.shape)}; expected [query, key], both as long")
        if not weights.is_floating_point() or not weights.isfinite().all() or (weights < 0).any():
            raise BadInput("a fixed pattern holds what is no weight; expected finite numbers from 0 on")
        if (weights.sum(dim=1) > 1.01).any():  # rounded in half precision a row is a little more than 1
            raise BadInput("a row of a fixed pattern sums to more than 1")
        if weights.triu(1).any():
            raise BadInput("a fixed pattern is against the causal mask: a query attends to a later key")
        if self.kind not in FIXED:
            raise BadInput(f"a fixed pattern of the kind {self.kind!r}; expected {', '.join(FIXED)}")

    @property
    def name(self) -> str:
        """``mean``, ``map`` or ``given``."""
        return self.kind

    def __str__(self) -> str:
        return f"{self.kind} {self.digest[:8]}"

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its numbers in single precision."""
        numbers = self.weights.detach().float().cpu().contiguous().numpy()
        return hashlib.sha256(f"{numbers.shape}".encode() + numbers.tobytes()).hexdigest()

    @property
    def as_map(self) -> Fixed:
        """Every query attends to the key alone that it attends to most: position to position."""
        return Fixed(torch.nn.functional.one_hot(self.weights.argmax(dim=1), len(self.weights)).float(), "map")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fixed) and (self.kind, self.digest) == (other.kind, other.digest)

    def __hash__(self) -> int:
        return hash((self.kind, self.digest))

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Its numbers.

        Raises:
            BadInput: the examples have another length.
        """
        if n_positions != len(self.weights):
            raise BadInput(f"a {self.kind} pattern of {len(self.weights)} positions; the examples have {n_positions}")
        return self.weights.to(_device(roles))[None]


FIXED = ("mean", "map", "given")  # kinds of fixed patterns


@dataclass(frozen=True)
class Condition:
    """On which chains a row is there: those with some labels of a group, at one role.

    Attributes:
        group: ``position``, or one that the problem offers, such as ``slot``.
        at: the role at which the label is read.
        labels: those with which the row is there.
    """

    group: str
    at: str
    labels: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(sorted(set(self.labels))))
        if not self.labels:
            raise BadInput(f"a condition on no {self.group}; leave the row out")

    def __str__(self) -> str:
        return f"{self.group} {', '.join(map(str, self.labels))}"

    def holds(self, roles: Roles) -> Bool[torch.Tensor, "batch chain"]:
        """For every example and chain, whether the row is there."""
        labels = roles.group(self.group, self.at)
        return torch.isin(labels, torch.tensor(self.labels, device=labels.device))


@dataclass(frozen=True)
class OneHot(Mechanism):
    """Each named role attends to one other role, in its own chain.

    Attributes:
        rows: from-role and target; the target is a role, or ``uniform``, ``identity``, ``previous`` or ``zero``
            where a path was taken away. The order means nothing.
        elsewhere: the rows of all other positions: ``zero`` (as in the paper), ``uniform``, ``identity``, or those of a
            fixed pattern. The default of a row too, where its condition does not hold.
        where: the conditions of rows, by from-role and target; a row without one is there on every chain. A role may
            have several rows, on different chains.
    """

    rows: tuple[tuple[str, str], ...]
    elsewhere: str | Fixed = "zero"
    where: tuple[tuple[tuple[str, str], Condition], ...] = ()

    def __init__(
        self,
        rows: Mapping[str, str] | Iterable[tuple[str, str]],
        elsewhere: str | Fixed = "zero",
        where: Mapping[tuple[str, str], Condition] = NO_CONDITIONS,
    ) -> None:
        given = rows.items() if isinstance(rows, Mapping) else rows
        object.__setattr__(self, "rows", tuple(sorted(given)))
        object.__setattr__(self, "elsewhere", elsewhere)
        object.__setattr__(self, "where", tuple(sorted(where.items(), key=lambda item: item[0])))
        if not self.rows:
            raise BadInput("a one-hot head needs at least one path; use uniform or identity for a head without")
        if isinstance(elsewhere, str) and elsewhere not in ELSEWHERE:
            raise BadInput(f"elsewhere is {elsewhere!r}; expected zero, uniform or identity")
        if len(set(self.rows)) < len(self.rows):
            raise BadInput(f"rows repeat: {', '.join(map(' -> '.join, self.rows))}")
        sources = [source for source, _ in self.rows]
        for source, target in self.rows:
            if sources.count(source) > 1 and (source, target) not in where:
                raise BadInput(f"{source!r} has several rows; expected a condition on each")
        for row in where:
            if row not in self.rows:
                raise BadInput(f"a condition on the row {' -> '.join(row)}, which is not there")

    @property
    def name(self) -> str:
        """``one_hot``."""
        return "one_hot"

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """The rows that attend to a role, as (from-role, to-role)."""
        return tuple((source, target) for source, target in self.rows if target not in ROWS)

    def with_row(self, source: str, target: str, was: str | None = None) -> OneHot:
        """The same mechanism with one row changed, or one more; a condition stays with its row.

        Args:
            source: the role that attends.
            target: where it attends now.
            was: where the row that changes led before; all rows of the role become one if it is not given.
        """
        changed = [row for row in self.rows if row[0] == source and was in (row[1], None)]
        where = {row: condition for row, condition in self.where if row not in changed}
        if len(changed) == 1 and changed[0] in dict(self.where):
            where[source, target] = dict(self.where)[changed[0]]
        return OneHot([*(row for row in self.rows if row not in changed), (source, target)], self.elsewhere, where)

    def without_row(self, source: str, target: str | None = None) -> OneHot:
        """The same mechanism with one row left to ``elsewhere``, or all of a role."""
        gone = [row for row in self.rows if row[0] == source and target in (row[1], None)]
        where = {row: condition for row, condition in self.where if row not in gone}
        return OneHot([row for row in self.rows if row not in gone], self.elsewhere, where)

    @property
    def said_rows(self) -> list[str]:
        """Every row in words, with its condition."""
        where = {row: f" on {condition}" for row, condition in self.where}
        return [f"{' -> '.join(row)}{where.get(row, '')}" for row in self.rows]

    def __str__(self) -> str:
        rows = ", ".join(self.said_rows)
        return rows if self.elsewhere == "zero" else f"{rows}; elsewhere {self.elsewhere}"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """One pattern for every example, ``[batch, query, key]``.

        Raises:
            BadInput: a role is unknown, or two roles share a position and want different rows there.
        """
        n, where = len(roles), dict(self.where)
        base = ROWS[self.elsewhere] if isinstance(self.elsewhere, str) else self.elsewhere
        pattern = base.pattern(roles, n_positions).repeat(n, 1, 1)
        taken = torch.zeros(n, n_positions, dtype=torch.bool, device=_device(roles))
        example = torch.arange(n, device=_device(roles))[:, None]
        for source, target in self.rows:
            at = roles[source]
            condition = where.get((source, target))
            there = condition.holds(roles) if condition else torch.ones_like(at, dtype=torch.bool)
            if target in ROWS:
                row = ROWS[target].pattern(roles, n_positions)[0][at]
            else:
                row = torch.nn.functional.one_hot(roles[target], n_positions).to(pattern.dtype)
            now = pattern[example, at]
            if (there & taken[example, at] & (now != row).any(dim=-1)).any():
                raise BadInput(f"the path from {source!r} meets another path's row at the same position")
            of, chain = there.nonzero(as_tuple=True)
            pattern[of, at[of, chain]] = row[of, chain]
            taken[of, at[of, chain]] = True
        return pattern

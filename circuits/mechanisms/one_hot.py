"""One-hot heads: zero except for one 1 in the row of each named role (paper, Appendix E).

A row may hold on some instances only, under a ``Condition``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from jaxtyping import Bool, Float, Int

from circuits.errors import BadInput, whole
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, ROWS, Ends, Mechanism
from circuits.roles import Roles, check_name
from circuits.utils.lazy import torch

POSITION = re.compile("position ([0-9]{1,6})")  # a fixed position as the target of a row
MOST = 999_999  # the largest label


def is_role(target: str) -> bool:
    """Whether a row with this target is a path, that is, leads to a role."""
    return target not in ROWS and not POSITION.fullmatch(target)


@dataclass(frozen=True)
class Condition:
    """The instances on which a row holds: those with some labels of a group, at one role.

    Attributes:
        group: ``position``, or a group of the task, such as ``slot``.
        at: the role at which the label is read, usually the row's target.
        labels: the labels with which the row holds: whole numbers of any library; kept as a sorted tuple.
        also: other conditions; the row also holds if one of them does.
    """

    group: str
    at: str
    labels: Any
    also: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        if self.group != "position":
            check_name("group", self.group)
        check_name("role", self.at)
        several = isinstance(self.labels, Iterable) and not isinstance(self.labels, str)
        given = self.labels if several else (self.labels,)
        vars(self)["labels"] = tuple(sorted({whole(f"a label of {self.group}", label, 0, MOST) for label in given}))
        if not self.labels:
            raise BadInput(f"a condition on no {self.group}; expected at least one label")
        if self.also:  # equal conditions are one, whatever the order of their parts
            joined: dict[tuple[str, str], tuple[int, ...]] = {}
            for part in self.alternatives:
                joined[part.group, part.at] = joined.get((part.group, part.at), ()) + part.labels
            first, *rest = (Condition(*read, numbers) for read, numbers in sorted(joined.items()))
            vars(self).update(vars(first), also=tuple(rest))

    @property
    def alternatives(self) -> tuple[Condition, ...]:
        """The single conditions; the row holds if one of them does."""
        others = (part for other in self.also for part in other.alternatives)
        return (Condition(self.group, self.at, self.labels), *others)

    def __or__(self, other: Condition) -> Condition:
        return replace(self, also=(*self.also, other))

    def __str__(self) -> str:
        return self.text()

    def text(self, target: str | None = None) -> str:
        """Return a text such as ``slot 0, 2``, with the role at which the label is read, if this is not the target."""
        return " or ".join(
            f"{one.group} {', '.join(map(str, one.labels))}{f' of {one.at}' if target not in (None, one.at) else ''}"
            for one in self.alternatives
        )

    def holds(self, roles: Roles) -> Bool[torch.Tensor, "batch instance"]:
        """Return for every example and instance whether the row holds."""
        there = [(roles.group(one.group, one.at), one.labels) for one in self.alternatives]
        holds = [torch.isin(labels, torch.tensor(numbers, device=labels.device)) for labels, numbers in there]
        return torch.stack(holds).any(dim=0)


@dataclass(frozen=True)
class OneHot(Mechanism):
    """Each named role attends to one target, in its own instance.

    Attributes:
        rows: pairs of source and target, in any order. A row is a path if the target is a role. Other targets are
            ``uniform``, ``identity``, ``previous``, ``first``, ``zero``, or a fixed position, such as ``position 3``.
        elsewhere: the rows of all other positions: ``zero`` (as in the paper), ``uniform``, ``identity``, or the rows
            of a fixed pattern.
        where: the conditions of rows, by source and target. A role may have several rows, on different instances. One
            of them may have no condition: it is the role's default row, for all instances that no other row covers.
            Without a default row, these instances follow ``elsewhere``.
    """

    rows: tuple[Ends, ...]
    elsewhere: str | FixedPattern = "zero"
    where: tuple[tuple[Ends, Condition], ...] = ()
    name = "one_hot"

    def __init__(
        self,
        rows: Mapping[str, str] | Iterable[Ends],
        elsewhere: str | FixedPattern = "zero",
        where: Mapping[Ends, Condition] = MappingProxyType({}),
    ) -> None:
        given = [*(rows.items() if isinstance(rows, Mapping) else rows or ())]
        if not isinstance(where, Mapping) or not all(isinstance(on, Condition) for on in where.values()):
            raise BadInput(f"the conditions are {where!r:.60}; expected {{(source, target): Condition(...)}}")
        for ends in given:
            if not isinstance(ends, tuple | list) or len(ends) != 2:
                raise BadInput(f"{ends!r:.60} is not a row; expected a source and a target, such as ('query', 'key')")
            check_name("role", ends[0])
            if not isinstance(ends[1], str) or is_role(ends[1]):
                check_name("role", ends[1])
        in_order = sorted((source, target) for source, target in given)
        conditions = sorted(where.items(), key=lambda item: item[0])
        vars(self).update(rows=tuple(in_order), elsewhere=elsewhere, where=tuple(conditions))
        if not self.rows:
            raise BadInput("a one-hot head needs at least one path; a head without paths is uniform or identity")
        if not isinstance(elsewhere, FixedPattern) and elsewhere not in ELSEWHERE:
            raise BadInput(f"elsewhere is {elsewhere!r:.60}; expected zero, uniform or identity, or a fixed pattern")
        if len(set(self.rows)) < len(self.rows):
            raise BadInput(f"rows repeat: {', '.join(map(' -> '.join, self.rows))}")
        defaults = [source for source, target in self.rows if (source, target) not in where]
        for source in defaults:
            if defaults.count(source) > 1:
                raise BadInput(f"{source!r} has several rows without a condition; expected a condition on all but one")
        for row in where:
            if row not in self.rows:
                raise BadInput(f"a condition is on the row {' -> '.join(row)}, which does not exist")

    @property
    def paths(self) -> tuple[Ends, ...]:
        """The rows that lead to a role, as (source, target)."""
        return tuple((source, target) for source, target in self.rows if is_role(target))

    @property
    def varies(self) -> bool:
        """Whether a row leads to a role, or holds on some instances only."""
        return bool(self.paths or self.where)

    def holds(self, source: str, target: str, roles: Roles) -> Bool[torch.Tensor, "batch instance"]:
        """Return for every example and instance whether a row holds; a default row does where no other row does."""
        where = dict(self.where)
        if (source, target) in where:
            return where[source, target].holds(roles)
        others = [condition.holds(roles) for (other, _), condition in self.where if other == source]
        return ~torch.stack([torch.zeros_like(roles[source], dtype=torch.bool), *others]).any(dim=0)

    def out_of_window(self, roles: Roles) -> tuple[Ends, ...]:
        """Return the rows whose target is out of the window of their source, on an instance on which they hold."""
        if roles.window is None:
            return ()
        away = {(one, to): roles[one] - place_of(to, roles) for one, to in self.rows if to not in ROWS}
        return tuple(ends for ends, far in away.items() if (self.holds(*ends, roles) & (far >= roles.window)).any())

    @property
    def specification(self) -> object:
        """The rows, ``elsewhere``, and the conditions."""
        elsewhere = self.elsewhere if isinstance(self.elsewhere, str) else self.elsewhere.specification
        where = [[row, one.group, one.at, one.labels] for row, on in self.where for one in on.alternatives]
        return [self.rows, elsewhere, *([where] if where else ())]

    def with_row(self, source: str, target: str, was: str | None = None) -> OneHot:
        """Return the mechanism with one row changed or added; a changed row keeps its condition.

        The changed row is the one to the target ``was``; by default all rows of the source become one. If it then
        equals another row, the two become one row, on the instances of both.
        """
        new, conditions = (source, target), dict(self.where)
        changed = [row for row in self.rows if row[0] == source and was in (row[1], None)]
        condition = conditions.get(changed[0]) if len(changed) == 1 else None
        if new in self.rows and new not in changed:
            other = conditions.pop(new, None)
            condition = condition | other if condition and other else None
        kept = [row for row in self.rows if row not in changed and row != new]
        where = {row: conditions[row] for row in kept if row in conditions}
        return OneHot([*kept, new], self.elsewhere, where | ({new: condition} if condition else {}))

    def without_row(self, source: str, target: str | None = None) -> OneHot:
        """Return the mechanism without one row of a role, or without all of them; they then follow ``elsewhere``."""
        kept = [row for row in self.rows if row[0] != source or target not in (row[1], None)]
        return OneHot(kept, self.elsewhere, {row: condition for row, condition in self.where if row in kept})

    def __str__(self) -> str:
        where = {row: f" on {condition.text(row[1])}" for row, condition in self.where}
        rows = ", ".join(f"{' -> '.join(row)}{where.get(row, '')}" for row in self.rows)
        return rows if self.elsewhere == "zero" else f"{rows}; elsewhere {self.elsewhere}"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return one pattern for every example, ``[batch, query, key]``.

        Raises:
            BadInput: a role is unknown, or two roles or instances share a position and have different rows there.
        """
        base = ROWS[self.elsewhere] if isinstance(self.elsewhere, str) else self.elsewhere
        pattern = base.pattern(roles, n_positions).expand(len(roles), -1, -1).clone()
        written = []
        for source, target in self.rows:
            there, at = self.holds(source, target, roles), roles[source]
            of, instance = there.nonzero(as_tuple=True)
            row = row_pattern(target, at, there, roles, n_positions).to(pattern.dtype)[of, instance]
            written.append((source, of, at[of, instance], row))
            pattern[of, at[of, instance]] = row
        for source, of, at, row in written:
            if (pattern[of, at] != row).any():
                raise BadInput(f"the row of {source!r} differs from another row at the same position; expected one row")
        return pattern


def row_pattern(
    target: str,
    at: Int[torch.Tensor, "batch instance"],
    there: Bool[torch.Tensor, "batch instance"],
    roles: Roles,
    n_positions: int,
) -> Float[torch.Tensor, "batch instance key"]:
    """Return the attention from the positions ``at`` to a target, on the instances on which the row holds."""
    if target in ROWS:
        rows = ROWS[target].pattern(roles, n_positions).expand(len(roles), -1, -1)
        return rows[torch.arange(len(roles), device=at.device)[:, None], at]
    to = place_of(target, roles)
    if roles.causal and (to > at)[there].any():
        raise BadInput(f"{target!r} comes after a position that attends to it, against the causal mask")
    return torch.nn.functional.one_hot(to, n_positions).float()


def place_of(target: str, roles: Roles) -> Int[torch.Tensor, "batch instance"]:
    """Return where a role or a fixed position is, in every example and instance."""
    if fixed := POSITION.fullmatch(target):
        return (roles.first[:, None] + int(fixed[1])).expand(-1, roles.positions.shape[2])
    return roles[target]

"""One-hot heads: zero except for one 1 where each named role is expected to attend (paper, Appendix E).

Rows may be there on some instances only, under a ``Condition``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from jaxtyping import Bool, Float, Int

from circuits.errors import BadInput
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, ROWS, Mechanism
from circuits.roles import Roles
from circuits.utils.lazy import torch

Ends = tuple[str, str]  # of a row: the role that attends, and where
ON = 0.5  # average attention along a path, on the instances of one label, from which on it is there
POSITION = re.compile("position ([0-9]{1,6})")  # as the target of a row


def is_role(target: str) -> bool:
    """Whether a row with this target is a path: it leads to a role."""
    return target not in ROWS and not POSITION.fullmatch(target)


@dataclass(frozen=True)
class Condition:
    """On which instances a row is there: those with some labels of a group, at one role.

    Attributes:
        group: ``position``, or one that the problem offers, such as ``slot``.
        at: the role at which the label is read.
        labels: those with which the row is there.
        also: other conditions under each of which it is there, too.
    """

    group: str
    at: str
    labels: tuple[int, ...]
    also: tuple[Condition, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "labels", tuple(sorted(set(self.labels))))
        if not self.labels:
            raise BadInput(f"a condition on no {self.group}; leave the row out")

    @property
    def alternatives(self) -> tuple[Condition, ...]:
        """The conditions under each of which the row is there, without others."""
        return (Condition(self.group, self.at, self.labels), *self.also)

    def __or__(self, other: Condition) -> Condition:
        labels: dict[tuple[str, str], tuple[int, ...]] = {}
        for part in (*self.alternatives, *other.alternatives):
            labels[part.group, part.at] = labels.get((part.group, part.at), ()) + part.labels
        first, *also = (Condition(*read, numbers) for read, numbers in sorted(labels.items()))
        return replace(first, also=tuple(also))

    def __str__(self) -> str:
        return self.said()

    def said(self, target: str | None = None) -> str:
        """``slot 0, 2``; with the role where the label is read, if it is not that to which the row leads."""
        return " or ".join(
            f"{one.group} {', '.join(map(str, one.labels))}{f' of {one.at}' if target not in (None, one.at) else ''}"
            for one in self.alternatives
        )

    def holds(self, roles: Roles) -> Bool[torch.Tensor, "batch instance"]:
        """For every example and instance, whether the row is there."""
        there = [(roles.group(one.group, one.at), one.labels) for one in self.alternatives]
        own = [torch.isin(labels, torch.tensor(numbers, device=labels.device)) for labels, numbers in there]
        return torch.stack(own).any(dim=0)


@dataclass(frozen=True)
class OneHot(Mechanism):
    """Each named role attends to one other role, in its own instance.

    Attributes:
        rows: from-role and target; the target is a role, or no path: ``uniform``, ``identity``, ``previous``, ``zero``
            or a fixed position, such as ``position 3``. The order means nothing.
        elsewhere: the rows of all other positions: ``zero`` (as in the paper), ``uniform``, ``identity``, or those of a
            fixed pattern.
        where: the conditions of rows, by from-role and target. A role may have several rows, on different instances;
            one of them may have no condition: the role's default, on all instances that the others leave. Without one
            these follow ``elsewhere``.
    """

    rows: tuple[Ends, ...]
    elsewhere: str | FixedPattern = "zero"
    where: tuple[tuple[Ends, Condition], ...] = ()
    own = False

    def __init__(
        self,
        rows: Mapping[str, str] | Iterable[Ends],
        elsewhere: str | FixedPattern = "zero",
        where: Mapping[Ends, Condition] = MappingProxyType({}),
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
        defaults = [source for source, target in self.rows if (source, target) not in where]
        for source in defaults:
            if defaults.count(source) > 1:
                raise BadInput(f"{source!r} has several rows without a condition; expected a condition on all but one")
        for row in where:
            if row not in self.rows:
                raise BadInput(f"a condition on the row {' -> '.join(row)}, which is not there")

    @property
    def name(self) -> str:
        """``one_hot``."""
        return "one_hot"

    @property
    def paths(self) -> tuple[Ends, ...]:
        """The rows that attend to a role, as (from-role, to-role)."""
        return tuple((source, target) for source, target in self.rows if is_role(target))

    def on_all_instances(self, roles: Roles) -> bool:
        """Whether every role from which a path leads has one on every instance of the examples."""
        left: dict[str, torch.Tensor] = {}  # on which instances a role has none, [batch, instance]
        for source, target in self.paths:
            condition = dict(self.where).get((source, target))
            there = condition.holds(roles) if condition else torch.tensor(True)
            left[source] = left.get(source, torch.tensor(True)) & ~there
        return not any(bool(own.any()) for own in left.values())

    @property
    def specification(self) -> object:
        """Its rows, what is elsewhere, and the conditions."""
        elsewhere = self.elsewhere if isinstance(self.elsewhere, str) else self.elsewhere.specification
        where = [
            [row, one.group, one.at, one.labels] for row, condition in self.where for one in condition.alternatives
        ]
        return [self.rows, elsewhere, *([where] if where else ())]

    def with_row(self, source: str, target: str, was: str | None = None) -> OneHot:
        """The same mechanism with one row changed, or one more; a condition stays with its row.

        Rows that become the same one are one row then, on the instances of both.

        Args:
            source: the role that attends.
            target: where it attends now.
            was: where the row that changes led before; all rows of the role become one if it is not given.
        """
        changed = [row for row in self.rows if row[0] == source and was in (row[1], None)]
        where = {row: condition for row, condition in self.where if row not in changed}
        if len(changed) == 1 and changed[0] in dict(self.where):
            condition, other = dict(self.where)[changed[0]], where.get((source, target))
            if other is None and ((source, target) in changed or (source, target) not in self.rows):
                where[source, target] = condition
            elif other:
                where[source, target] = other | condition
        kept = [row for row in self.rows if row not in changed and row != (source, target)]
        return OneHot([*kept, (source, target)], self.elsewhere, where)

    def without_row(self, source: str, target: str | None = None) -> OneHot:
        """The same mechanism with one row left to ``elsewhere``, or all of a role."""
        gone = [row for row in self.rows if row[0] == source and target in (row[1], None)]
        where = {row: condition for row, condition in self.where if row not in gone}
        return OneHot([row for row in self.rows if row not in gone], self.elsewhere, where)

    @property
    def said_rows(self) -> list[str]:
        """Every row in words, with its condition."""
        where = {row: f" on {condition.said(row[1])}" for row, condition in self.where}
        return [f"{' -> '.join(row)}{where.get(row, '')}" for row in self.rows]

    def __str__(self) -> str:
        rows = ", ".join(self.said_rows)
        return rows if self.elsewhere == "zero" else f"{rows}; elsewhere {self.elsewhere}"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """One pattern for every example, ``[batch, query, key]``.

        Raises:
            BadInput: a role is unknown, or two roles share a position and want different rows there.
        """
        n, n_instances = len(roles), roles.positions.shape[2]
        base = ROWS[self.elsewhere] if isinstance(self.elsewhere, str) else self.elsewhere
        pattern = base.pattern(roles, n_positions).repeat(n, 1, 1)
        taken = torch.zeros(n, n_positions, dtype=torch.bool, device=pattern.device)
        example = torch.arange(n, device=pattern.device)[:, None]
        left = {source: torch.ones(n, n_instances, dtype=torch.bool, device=pattern.device) for source, _ in self.rows}
        where = dict(self.where)
        for source, target in sorted(self.rows, key=lambda row: row not in where):  # defaults last
            at = roles[source]
            there = where[source, target].holds(roles) if (source, target) in where else left[source]
            left[source] = left[source] & ~there
            row = _row(target, at, there, roles, n_positions).to(pattern.dtype)
            now = pattern[example, at]
            if (there & taken[example, at] & (now != row).any(dim=-1)).any():
                raise BadInput(f"the path from {source!r} meets another path's row at the same position")
            of, instance = there.nonzero(as_tuple=True)
            pattern[of, at[of, instance]] = row[of, instance]
            taken[of, at[of, instance]] = True
        return pattern


def _row(
    target: str,
    at: Int[torch.Tensor, "batch instance"],
    there: Bool[torch.Tensor, "batch instance"],
    roles: Roles,
    n_positions: int,
) -> Float[torch.Tensor, "batch instance key"]:
    """The attention from the positions ``at`` to a target, on the instances where the row is there."""
    if target in ROWS:
        return ROWS[target].pattern(roles, n_positions)[0][at]
    fixed = POSITION.fullmatch(target)
    to = torch.full_like(at, int(fixed[1])) if fixed else roles[target]
    if (to > at)[there].any():
        raise BadInput(f"{target!r} stands after a position that is to attend to it, against the causal mask")
    return torch.nn.functional.one_hot(to, n_positions).float()

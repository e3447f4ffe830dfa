"""Mechanisms: what a head is supposed to do, as an attention pattern (paper, Appendix E).

A mechanism is simple (``Uniform``, ``Identity``, ``Previous``) or ``OneHot``: zero except for one 1 where each
named role is expected to attend. Rows of a ``OneHot`` may be simple too, so that single paths can be ablated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from jaxtyping import Float

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
REPLACEMENTS = ("uniform", "identity")  # what a row becomes when its path is taken away (paper, Appendix E, step 6)


@dataclass(frozen=True)
class OneHot(Mechanism):
    """Each named role attends to one other role, in its own chain.

    Attributes:
        rows: from-role and target; the target is a role, or ``uniform``, ``identity``, ``previous`` or ``zero``
            where a path was taken away. The order means nothing.
        elsewhere: the rows of all other positions: ``zero`` (as in the paper), ``uniform`` or ``identity``.
    """

    rows: tuple[tuple[str, str], ...]
    elsewhere: str = "zero"

    def __init__(self, rows: Mapping[str, str], elsewhere: str = "zero") -> None:
        object.__setattr__(self, "rows", tuple(sorted(rows.items())))
        object.__setattr__(self, "elsewhere", elsewhere)
        if not rows:
            raise BadInput("a one-hot head needs at least one path; use uniform or identity for a head without")
        if elsewhere not in ELSEWHERE:
            raise BadInput(f"elsewhere is {elsewhere!r}; expected zero, uniform or identity")

    @property
    def name(self) -> str:
        """``one_hot``."""
        return "one_hot"

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """The rows that attend to a role, as (from-role, to-role)."""
        return tuple((source, target) for source, target in self.rows if target not in ROWS)

    def with_row(self, source: str, target: str) -> OneHot:
        """The same mechanism with one row changed."""
        return OneHot({**dict(self.rows), source: target}, self.elsewhere)

    def without_row(self, source: str) -> OneHot:
        """The same mechanism with one row left to ``elsewhere``."""
        return OneHot({role: target for role, target in self.rows if role != source}, self.elsewhere)

    def __str__(self) -> str:
        rows = ", ".join(f"{source} -> {target}" for source, target in self.rows)
        return rows if self.elsewhere == "zero" else f"{rows}; elsewhere {self.elsewhere}"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """One pattern for every example, ``[batch, query, key]``.

        Raises:
            BadInput: a role is unknown, or two roles share a position and want different rows there.
        """
        n = len(roles)
        pattern = ROWS[self.elsewhere].pattern(roles, n_positions).repeat(n, 1, 1)
        taken = torch.zeros(n, n_positions, dtype=torch.bool, device=_device(roles))
        example = torch.arange(n, device=_device(roles))[:, None]
        for source, target in self.rows:
            at = roles[source]
            if target in ROWS:
                row = ROWS[target].pattern(roles, n_positions)[0][at]
            else:
                row = torch.nn.functional.one_hot(roles[target], n_positions).to(pattern.dtype)
            clash = taken[example, at] & (pattern[example, at] != row).any(dim=-1)
            if clash.any():
                raise BadInput(f"the path from {source!r} meets another path's row at the same position")
            pattern[example, at] = row
            taken[example, at] = True
        return pattern

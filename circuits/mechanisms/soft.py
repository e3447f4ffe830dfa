"""Soft heads: a role attends to other roles to some part, as heads of language models do.

A name mover attends from the end to the indirect object by 0.6, and by 0.3 to the first token. One-hot paths would make
it stronger than it is. Here a role's row is the average attention from this role to others, wherever they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float

from circuits.errors import BadInput, real
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Ends, Mechanism
from circuits.roles import Roles, check_name
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Soft(Mechanism):
    """Each named role attends to some roles of its own instance, by weights; the rest of its row depends on positions.

    Attributes:
        weights: for every source and target, the attention where the target can be seen, above 0 and at most 1.
        elsewhere: what is left of such a row goes to other positions in its proportions, and all other rows are its.
            Every row is divided by its sum, as weights that add up to more than 1 are.
    """

    weights: tuple[tuple[Ends, float], ...]
    elsewhere: FixedPattern
    name = "soft"

    def __init__(self, weights: Mapping[Ends, Any], elsewhere: Any) -> None:
        if not isinstance(elsewhere, FixedPattern):
            raise BadInput(f"elsewhere of a soft head is {elsewhere!r:.60}; expected a fixed pattern, such as mean")
        made = {}
        for (source, target), weight in weights.items():
            for role in (source, target):
                check_name("role", role)
            made[source, target] = real(f"the weight of {source} -> {target}", weight, above=0.0)
            if made[source, target] > 1:
                raise BadInput(f"the weight of {source} -> {target} is {weight}; expected at most 1")
        if not made:
            raise BadInput("a soft head needs at least one path; a head without paths is a fixed pattern")
        vars(self).update(weights=tuple(sorted(made.items())), elsewhere=elsewhere)

    @property
    def paths(self) -> tuple[Ends, ...]:
        """All sources with their targets."""
        return tuple(ends for ends, _ in self.weights)

    @property
    def varies(self) -> bool:
        """True: the pattern follows roles."""
        return True

    def without_row(self, source: str, target: str) -> Soft | FixedPattern:
        """Return the mechanism without one weight, whose part of the row follows ``elsewhere``; without any, this."""
        kept = {ends: weight for ends, weight in self.weights if ends != (source, target)}
        return Soft(kept, self.elsewhere) if kept else self.elsewhere

    def seen(self, roles: Roles) -> dict[str, dict[str, float]]:
        """Return for every source the weights of the targets that it can see in every instance."""
        by_source: dict[str, dict[str, float]] = {source: {} for source, _ in self.paths}
        for (source, target), weight in self.weights:
            by_source[source] |= {target: weight} if target in roles.before(source) else {}
        return by_source

    def holds(self, source: str, target: str, roles: Roles) -> Bool[torch.Tensor, "batch instance"]:
        """Return where the source can see the target."""
        return roles.sees(roles[source], roles[target])

    @property
    def specification(self) -> object:
        """The weights, and the specification of the rest."""
        return [self.name, [[*ends, weight] for ends, weight in self.weights], self.elsewhere.specification]

    def check(self) -> None:
        """Do nothing: it can be saved."""

    def __str__(self) -> str:
        return ", ".join(f"{' -> '.join(ends)} {weight:.2f}" for ends, weight in self.weights)

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return one pattern for every example; a target that a source cannot see gets nothing."""
        rest = self.elsewhere.pattern(roles, n_positions).expand(len(roles), -1, -1)
        stated = torch.zeros_like(rest)
        for (source, target), weight in self.weights:
            at, to = roles[source], roles[target]
            example, instance = roles.sees(at, to).nonzero(as_tuple=True)
            there = torch.zeros_like(rest, dtype=torch.bool)
            there[example, at[example, instance], to[example, instance]] = True  # instances may share both
            stated += weight * there
        tiny, total = torch.finfo(rest.dtype).tiny, stated.sum(dim=-1, keepdim=True)
        others = rest.masked_fill(stated > 0, 0)
        others = others * (1 - total).clamp(min=0) / others.sum(dim=-1, keepdim=True).clamp(min=tiny)
        pattern = (stated + others).where(total > 0, rest)
        return pattern / pattern.sum(dim=-1, keepdim=True).clamp(min=tiny)

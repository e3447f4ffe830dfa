"""Paths as a head's attention shows them: from which role to which, and on which chains."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.attention import attention_by_group, attention_patterns
from circuits.circuit import Head
from circuits.evaluation import sequences_at_once
from circuits.fixed_pattern import Fixed
from circuits.one_hot import ON, Condition, OneHot
from circuits.problem import Examples
from circuits.roles import Roles


@dataclass(frozen=True)
class Row:
    """The chains on which a path of a head is there, and the head's attention from its role on those.

    Attributes:
        condition: on which chains; None for all.
        total: attention of the role's positions, summed over the examples in which the path is on there.
        times: how often it is on, by position.
    """

    condition: Condition | None
    total: Float[Tensor, "query key"]
    times: Float[Tensor, " query"]


Rows = dict[tuple[str, str], Row]  # by the roles at its ends


class SeenPaths:
    """The paths of every head, and its average attention where none of them is on.

    Attributes:
        rows: for every head its paths, by the roles at their ends.
    """

    def __init__(self, model: HookedTransformer, examples: Examples, means: Mapping[Head, Fixed]) -> None:
        """``means`` are the heads' average patterns on the same examples."""
        self._means, self._roles, self._n = means, examples.roles, len(examples)
        group = examples.roles.main_group or "position"
        seen = attention_by_group(model, examples, group)
        conditions = {head: self._conditions(seen[head.layer, head.head], group) for head in means}
        self.rows: dict[Head, Rows] = {head: {} for head in means}
        n_positions = examples.inputs.shape[1]
        at_once = sequences_at_once(model.cfg.n_heads, n_positions)
        for head, found in conditions.items():
            for ends, condition in found.items():
                total, times = torch.zeros(n_positions, n_positions), torch.zeros(n_positions)
                self.rows[head][ends] = Row(condition, total, times)
        for start in range(0, len(examples), at_once):
            batch = examples.take(slice(start, start + at_once))
            for layer, pattern in attention_patterns(model, batch):
                for head in (head for head in means if head.layer == layer):
                    for (source, _), row in self.rows[head].items():
                        example, chain = _there(row.condition, batch.roles, source).nonzero(as_tuple=True)
                        place = batch.roles[source][example, chain]
                        row.total.index_add_(0, place.cpu(), pattern[example, head.head, place].float().cpu())
                        row.times.index_add_(0, place.cpu(), torch.ones(len(place)))

    def _conditions(
        self, seen: Float[Tensor, "query_role key_role label"], group: str
    ) -> dict[tuple[str, str], Condition | None]:
        """The paths that are on somewhere, and on which chains (None: all); of two on the same ones the stronger."""
        names, found = self._roles.names, {}
        strength: dict[tuple[str, str], float] = {}
        for source, target in self._roles.pairs:
            by_label = seen[names.index(source), names.index(target)].tolist()
            labels = [label for label, attention in enumerate(by_label) if attention == attention]  # NaN: none there
            on = [label for label in labels if by_label[label] > ON]
            if on:
                found[source, target] = None if on == labels else Condition(group, target, tuple(on))
                strength[source, target] = sum(by_label[label] for label in on)
        taken: dict[str, Tensor] = {}
        kept = {}
        for source, target in sorted(found, key=lambda ends: -strength[ends]):
            there = _there(found[source, target], self._roles, source)
            if source not in taken or not (taken[source] & there).any():
                kept[source, target] = found[source, target]
                taken[source] = taken.get(source, there) | there
        return kept

    def mechanism(self, head: Head, ends: Iterable[tuple[str, str]]) -> Fixed | OneHot:
        """A head with some of its paths, and its average where none of them is on."""
        mean, rows = self._means[head], {these: self.rows[head][these] for these in ends}
        if not rows:
            return mean
        total = self._n * mean.weights - sum((row.total for row in rows.values()), torch.zeros(()))
        times = self._n - sum((row.times for row in rows.values()), torch.zeros(()))
        rest = torch.where(times[:, None] > 0.5, total / times.clamp(min=1)[:, None], mean.weights)
        where = {these: row.condition for these, row in rows.items() if row.condition is not None}
        return OneHot([*rows], Fixed(rest.clamp(min=0), "mean"), where)


def _there(condition: Condition | None, roles: Roles, source: str) -> Bool[Tensor, "example chain"]:
    """On which chains a path from a role is there."""
    return condition.holds(roles) if condition else torch.ones_like(roles[source], dtype=torch.bool)

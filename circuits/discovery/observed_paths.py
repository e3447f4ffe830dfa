"""The paths that a head's attention shows: from which role, to which role, and on which instances."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.attention import attention_by_group
from circuits.circuit import Head
from circuits.discovery.observed_positions import observed_positions
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import ON, Condition, Ends, OneHot
from circuits.model.batching import sequences_at_once
from circuits.model.patterns import attention_patterns
from circuits.model.transformer import Transformer
from circuits.model.windows import windowed
from circuits.roles import Roles
from circuits.task import Examples


@dataclass(frozen=True)
class Row:
    """A path of a head: the instances on which it holds, and the head's attention there.

    Attributes:
        condition: the condition on the instances; None for all.
        total: the attention from each position, summed over the cases in which the path holds at that position.
        times: the number of such cases, by position.
    """

    condition: Condition | None
    total: Float[Tensor, "query key"]
    times: Float[Tensor, " query"]


# The average attention from which on a path is a candidate if the paths above ON do not explain the model. A head that
# leaks to other instances may give its target less than half, and an MLP may still take what it has most of.
LIKELY = 0.3
Rows = dict[Ends, Row]
Attention = Float[Tensor, "query_role key_role label"]


@dataclass(frozen=True)
class _Seen:
    """A path that attention shows.

    Attributes:
        ends: the source and the target.
        condition: the condition on the instances; None for all.
        there: whether the path holds on an instance.
        attention: the average attention along the path; 0 is counted where it does not hold.
        misfit: the mean squared difference of the attention from 1 where the path holds, and from 0 where it does not.
    """

    ends: Ends
    condition: Condition | None
    there: Bool[Tensor, "example instance"]
    attention: float
    misfit: float


class ObservedPaths:
    """The paths of every head, and its average attention where none of them holds.

    Attributes:
        rows: for every head, its paths and its rows to fixed positions, by source and target.
        single: for every head, its rows to a single fixed position each, in some cases of a source.
        n_readings: the number of sequences that were run.
    """

    def __init__(
        self,
        model: Transformer,
        examples: Examples,
        means: Mapping[Head, FixedPattern],
        likely: Collection[Head] = (),
    ) -> None:
        """Read the paths from attention.

        Args:
            model: the model.
            examples: the examples that attention is averaged over.
            means: the heads' average patterns on the same examples.
            likely: heads that also have, from roles without a path on which attention exceeds ``ON``, the paths on
                which it exceeds ``LIKELY``.
        """
        self._means, self._roles = means, windowed(model, examples.roles)
        self._times = examples.roles.times(examples.inputs.shape[1]).cpu()
        distinct, self._shared = self._roles.distinct, self._roles.shared
        sources = [name for name in distinct if name not in self._shared or self._roles.alone(name)]
        by_layer = {head.layer: self._roles.in_layer(head.layer) for head in means}
        self._ends = {
            layer: [(source, to) for source in sources for to in roles.before(source) if to in distinct]
            for layer, roles in by_layer.items()
        }
        groups = tuple(examples.roles.groups) or ("position",)
        self.n_readings = (len(groups) + 2) * len(examples)  # for paths, for positions, for the rows' averages
        seen = {group: attention_by_group(model, examples, group).cpu() for group in groups}
        own = {head: {group: each[head.layer, head.index] for group, each in seen.items()} for head in means}
        paths = {head: self._paths(head.layer, own[head], ON) for head in means}
        for head in likely:
            told = {path.ends[0] for path in paths[head]}
            paths[head] += [path for path in self._paths(head.layer, own[head], LIKELY) if path.ends[0] not in told]
        left = {head: self._left(own, sources) for head, own in paths.items()}
        places, single = observed_positions(model, examples, left, groups[0])
        self.rows: dict[Head, Rows] = {head: {} for head in means}
        self.single: dict[Head, Rows] = {head: {} for head in means}
        n_positions = examples.inputs.shape[1]
        at_once = sequences_at_once(model.cfg.n_heads, n_positions)
        for head in means:
            shown = [*((path.ends, path.condition) for path in paths[head]), *places[head].items()]
            for rows, conditions in ((self.rows, shown), (self.single, single[head].items())):
                for ends, condition in conditions:
                    total, times = torch.zeros(n_positions, n_positions), torch.zeros(n_positions)
                    rows[head][ends] = Row(condition, total, times)
        for start in range(0, len(examples), at_once):
            batch = examples.take(slice(start, start + at_once))
            for layer, padded in attention_patterns(model, batch):
                pattern = batch.roles.aligned(padded)
                for head in (head for head in means if head.layer == layer):
                    for (source, _), row in self._rows(head).items():
                        example, instance = _there(row.condition, batch.roles, source).nonzero(as_tuple=True)
                        place = batch.roles.group("position", source)[example, instance]
                        row.total.index_add_(0, place.cpu(), pattern[example, head.index, place].float().cpu())
                        row.times.index_add_(0, place.cpu(), torch.ones(len(place)))

    def _left(self, paths: Iterable[_Seen], sources: Iterable[str]) -> dict[str, Bool[Tensor, "example instance"]]:
        """Return for every role that is not shared the instances on which no path from it holds."""
        left = {source: torch.ones_like(self._roles[source], dtype=torch.bool).cpu() for source in sources}
        for path in paths:
            left[path.ends[0]] &= ~path.there
        return {source: own for source, own in left.items() if source not in self._shared and own.any()}

    def _paths(self, layer: int, seen: Mapping[str, Attention], on: float) -> list[_Seen]:
        """Return the paths that hold on some instances; of two from one role on one instance, only the stronger.

        The same is true of two that lead from one position to different ones, if two roles meet there.

        ``seen`` is a head's attention by the labels of every group. A path holds for a label above ``on``.
        """
        found = [path for ends in self._ends[layer] if (path := self._path(ends, seen, on))]
        kept: list[_Seen] = []
        taken: dict[str, Tensor] = {}
        looked_at = torch.full((len(self._roles), len(self._times)), -1)
        for path in sorted(found, key=lambda path: -path.attention):
            source = path.ends[0]
            example, instance = path.there.nonzero(as_tuple=True)
            at, to = (self._roles[role].cpu()[example, instance] for role in path.ends)
            others = looked_at[example, at]
            if (source not in taken or not (taken[source] & path.there).any()) and (
                (others < 0) | (others == to)
            ).all():
                kept.append(path)
                taken[source] = taken.get(source, path.there) | path.there
                looked_at[example, at] = to
        return kept

    def _path(self, ends: Ends, seen: Mapping[str, Attention], on: float) -> _Seen | None:
        """Return a path with the condition that fits best: attention near 1 where it holds, near 0 elsewhere."""
        (source, target), names, roles = ends, self._roles.names, self._roles
        found: list[_Seen] = []
        for group, by_label in seen.items():
            labels = roles.group(group, target).cpu()
            attention = by_label[names.index(source), names.index(target)][labels]
            there = attention > on
            if there.any() and (source not in self._shared or there.sum(dim=1).max() == 1):
                condition = None if there.all() else Condition(group, target, tuple(labels[there].unique().tolist()))
                misfit = (attention - there.float()).square().mean().item()
                found.append(_Seen(ends, condition, there, (attention * there).mean().item(), misfit))
        return min(found, key=lambda path: path.misfit, default=None)

    def positions(self, head: Head) -> dict[str, str]:
        """Return the rows to fixed positions that a head's average shows in the place of paths on some instances.

        If a head always attends to one position, it attends to a role on the instances on which the role stands there.
        """
        found: dict[str, str] = {}
        for source in {source for (source, _), row in self.rows[head].items() if row.condition is not None}:
            stands = self._roles.group("position", source).unique().cpu()
            shares, places = self._means[head].weights[stands].max(dim=-1)
            if len(stands) > 1 and (shares > ON).all() and len(places.unique()) == 1:
                found[source] = f"position {int(places[0])}"
        return found

    def _rows(self, head: Head) -> Rows:
        return {**self.rows[head], **self.single[head]}

    def mechanism(self, head: Head, ends: Iterable[Ends]) -> FixedPattern | OneHot:
        """Return a mechanism with some of a head's paths, and its average where none of them holds."""
        mean, rows = self._means[head], {these: self._rows(head)[these] for these in ends}
        if not rows:
            return mean
        total = self._times[:, None] * mean.weights - sum((row.total for row in rows.values()), torch.zeros(()))
        times = self._times - sum((row.times for row in rows.values()), torch.zeros(()))
        rest = torch.where(times[:, None] > 0.5, total / times.clamp(min=1)[:, None], mean.weights)
        where = {these: row.condition for these, row in rows.items() if row.condition is not None}
        return OneHot([*rows], FixedPattern(rest.clamp(min=0), "mean"), where)


def _there(condition: Condition | None, roles: Roles, source: str) -> Bool[Tensor, "example instance"]:
    """Return the instances on which a path from a role holds."""
    return condition.holds(roles) if condition else torch.ones_like(roles[source], dtype=torch.bool)

"""The rows that a head's attention shows: paths to roles, on which instances, and fixed positions.

A fixed position is chosen by the label of another role. If a symbol stands at one slot, a head may read it from another
position, for example from the next position, to which a previous-token head has copied it. The label of the symbol's
role determines this position. Such a row is not a path, because it does not lead to a role of the instance.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.attention import patterns, role_attention
from circuits.circuit import Head
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Ends
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.model.transformer import Transformer, windowed
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples

Attention = Float[Tensor, "layer head query_role key_role label"]
There = Bool[Tensor, "example instance"]
Conditions = dict[Ends, Condition | None]  # of rows; None for all instances


class Row(NamedTuple):
    """A row of a head: the instances on which it holds, and the head's attention there."""

    condition: Condition | None  # on the instances; None for all
    total: Float[Tensor, "layout query key"]  # from each position, summed over the cases in which the row holds there
    times: Float[Tensor, "layout query"]  # the number of such cases


class _Seen(NamedTuple):
    """A path that attention shows, with the instances on which it holds."""

    ends: Ends
    condition: Condition | None
    there: There
    attention: float  # its average, in which 0 is counted on all other instances
    misfit: float  # the mean squared difference of the attention from 1 where the path holds, and from 0 elsewhere


class ObservedPaths:
    """The paths of every head, and its average attention where none of them holds.

    Attributes:
        rows: for every head, its paths and its rows to fixed positions, by source and target.
        single: for every head, its rows to a single fixed position each, in some cases of a source.
        n_readings: the number of sequences that were run.
    """

    def __init__(
        self, model: Transformer, examples: Examples, means: Mapping[Head, FixedPattern], likely: Collection[Head] = ()
    ) -> None:
        """Read the paths from attention.

        A head's average pattern over other examples, ``means``, is its mechanism if it has no row. The heads of
        ``likely`` also have, from roles without a path on which attention exceeds ``attended``, the paths on which it
        exceeds ``likely`` (settings.py).
        """
        self._means, self._roles = means, (roles := windowed(model, examples.roles))
        self._sources = [role for role in roles.distinct if role not in roles.shared or roles.alone(role)]
        n_positions, layouts = examples.inputs.shape[1], roles.layouts("averages").cpu()
        square = int(layouts.max()) + 1, n_positions, n_positions
        from_first = roles.aligned(roles.tokens(n_positions).float(), 1).cpu()
        self._times = torch.zeros(square[:2], dtype=torch.float32).index_add_(0, layouts, from_first)
        groups = tuple(examples.roles.groups) or ("position",)
        self.n_readings = (len(groups) + 2) * len(examples)  # for paths, for positions, for the rows' averages
        by_label = {group: role_attention(model, examples, group).cpu() for group in groups}
        paths = {head: self._paths(head, by_label, current().attended) for head in means}
        for head in likely:
            clear = {path.ends[0] for path in paths[head]}
            paths[head] += [one for one in self._paths(head, by_label, current().likely) if one.ends[0] not in clear]
        left = {head: self._left(seen) for head, seen in paths.items()}
        places = observed_positions(model, examples, left, groups[0], current().attended)
        self.rows: dict[Head, dict[Ends, Row]] = {}
        self.single: dict[Head, dict[Ends, Row]] = {}
        for head, seen in paths.items():
            shown: Conditions = {path.ends: path.condition for path in seen}
            several, single = ([rows for rows in places[head] if (len(rows) > 1) == many] for many in (True, False))
            for rows_of, conditions in ((self.rows, [shown, *several]), (self.single, single)):
                rows_of[head] = {
                    ends: Row(condition, self._times.new_zeros(square), self._times.new_zeros(square[:2]))
                    for rows in conditions
                    for ends, condition in rows.items()
                }
        self._whole = {head: self._times.new_zeros(square) for head in means}
        for part, batch, layer, pattern in patterns(model, examples):
            from_first, of = batch.roles.aligned(pattern, -2, -1), layouts[part]
            for head in (head for head in means if head.layer == layer):
                self._whole[head].index_add_(0, of, from_first[:, head.index].float().cpu())
                for (source, _), row in self._rows(head).items():
                    stands = batch.roles.group("position", source)
                    there = torch.ones_like(stands) if row.condition is None else row.condition.holds(batch.roles)
                    example, instance = there.nonzero(as_tuple=True)
                    place = stands[example, instance]
                    at = of[example.cpu()] * n_positions + place.cpu()
                    row.total.flatten(0, 1).index_add_(0, at, from_first[example, head.index, place].float().cpu())
                    row.times.flatten().index_add_(0, at, torch.ones(len(place), dtype=torch.float32))

    def _left(self, paths: Iterable[_Seen]) -> dict[str, There]:
        """Return for every role that is not shared the instances on which no path from it holds."""
        left = {role: torch.ones_like(self._roles[role], dtype=torch.bool).cpu() for role in self._sources}
        for path in paths:
            left[path.ends[0]] &= ~path.there
        return {role: there for role, there in left.items() if role not in self._roles.shared and there.any()}

    def _paths(self, head: Head, by_label: Mapping[str, Attention], on: float) -> list[_Seen]:
        """Return the paths that hold on some instances; of two from one role on one instance, only the stronger.

        The same is true of two that lead from one position to different ones, if two roles meet there.

        ``by_label`` is the attention by the labels of every group. A path holds for a label above ``on``.
        """
        roles, distinct = self._roles.in_layer(head.layer), self._roles.distinct
        ends = [(source, to) for source in self._sources for to in roles.before(source) if to in distinct]
        seen = [path for one in ends if (path := self._path(head, one, by_label, on))]
        kept: list[_Seen] = []
        taken: dict[str, Tensor] = {}
        looked_at = torch.full((len(roles), self._times.shape[1]), -1)
        for path in sorted(seen, key=lambda path: -path.attention):
            source = path.ends[0]
            example, instance = path.there.nonzero(as_tuple=True)
            at, to = (roles[role].cpu()[example, instance] for role in path.ends)
            others, before = looked_at[example, at], taken.get(source, torch.zeros_like(path.there))
            if not (before & path.there).any() and ((others < 0) | (others == to)).all():
                kept.append(path)
                taken[source] = before | path.there
                looked_at[example, at] = to
        return kept

    def _path(self, head: Head, ends: Ends, by_label: Mapping[str, Attention], on: float) -> _Seen | None:
        """Return a path with the condition that fits best: attention near 1 where it holds, near 0 elsewhere."""
        roles, (source, target) = self._roles, ends
        paths: list[_Seen] = []
        for group, attention in by_label.items():
            labels = roles.group(group, target).cpu()
            paid = attention[*head, roles.names.index(source), roles.names.index(target)][labels]
            there = paid > on
            if there.any() and (source not in roles.shared or there.sum(dim=1).max() == 1):
                condition = None if there.all() else Condition(group, target, tuple(labels[there].unique().tolist()))
                misfit = (paid - there.float()).square().mean().item()
                paths.append(_Seen(ends, condition, there, (paid * there).mean().item(), misfit))
        return min(paths, key=lambda path: path.misfit, default=None)

    def positions(self, head: Head) -> dict[str, str]:
        """Return the rows to fixed positions that a head's average shows in the place of paths on some instances.

        If a head always attends to one position, it attends to a role on the instances on which the role stands there.
        """
        targets: dict[str, str] = {}
        for source in {source for (source, _), row in self.rows[head].items() if row.condition is not None}:
            stands = self._roles.group("position", source).unique().cpu()
            shares, places = self._means[head].weights[..., stands, :].max(dim=-1)
            if len(stands) > 1 and (shares > current().attended).all() and len(places.unique()) == 1:
                targets[source] = f"position {int(places.unique())}"
        return targets

    def _rows(self, head: Head) -> dict[Ends, Row]:
        return {**self.rows[head], **self.single[head]}

    def mechanism(self, head: Head, ends: Iterable[Ends]) -> FixedPattern | OneHot:
        """Return a mechanism with some of a head's rows, and its average where none of them holds."""
        mean, rows = self._means[head], {these: self._rows(head)[these] for these in ends}
        if not rows:
            return mean
        total = self._whole[head] - sum((row.total for row in rows.values()), torch.zeros(()))
        times = self._times - sum((row.times for row in rows.values()), torch.zeros(()))
        rest = torch.where(times[..., None] > 0.5, total / times.clamp(min=1)[..., None], mean.weights)
        rest = rest if mean.weights.ndim == 3 else rest[0]
        where = {these: row.condition for these, row in rows.items() if row.condition is not None}
        return OneHot([*rows], FixedPattern(rest.clamp(min=0), "mean"), where)


def observed_positions(
    model: Transformer, examples: Examples, left: Mapping[Head, Mapping[str, There]], group: str, on: float
) -> dict[Head, list[Conditions]]:
    """Find rows that lead from a role to fixed positions, by the labels of another role.

    Args:
        model: the model.
        examples: attention is averaged over them.
        left: for every head and source, the instances on which no path holds, ``[example, instance]``.
        group: the group of labels.
        on: a row holds for a label if the average attention along it is higher than this.

    Returns:
        For every head the rows of each source, by source and position (``position 3``), with their conditions: to two
        or more positions, or else to a single one.

    Raises:
        BadInput: the examples do not have the group.
    """
    roles = windowed(model, examples.roles)
    labels = torch.stack([roles.group(group, role) for role in roles.names], dim=2)
    of_label = torch.nn.functional.one_hot(labels).float()  # [example, instance, role, label]
    total = {(head, source): torch.zeros(()) for head, sources in left.items() for source in sources}
    for part, batch, layer, pattern in patterns(model, examples):
        from_first = batch.roles.aligned(pattern, -2, -1)
        example = torch.arange(len(batch), device=labels.device)[:, None]
        for head, source in (ends for ends in total if ends[0].layer == layer):
            there = left[head][source][part].to(labels.device).float()
            rows = from_first[example, head.index, batch.roles.group("position", source)].float()
            attended = torch.einsum("bck,bcrl,bc->rlk", rows, of_label[part], there)
            total[head, source] = total[head, source] + attended.cpu()
    rows_of: dict[Head, list[Conditions]] = {head: [] for head in left}
    for (head, source), attended in total.items():
        there = left[head][source]
        times = torch.einsum("bcrl,bc->rl", of_label.cpu(), there.float())
        attention = attended / times.clamp(min=1)[..., None]
        ways = possible_rows(source, attention, there, roles.in_layer(head.layer), group, on)
        several = [way for way in ways if len(way[1]) > 1]
        rows_of[head] += [rows for _, rows in sorted(several or ways, key=lambda way: -way[0])[:1]]
    return rows_of


def possible_rows(
    source: str, attention: Float[Tensor, "role label key"], left: There, roles: Roles, group: str, on: float
) -> list[tuple[float, Conditions]]:
    """Return for each role whose labels may choose the positions that a source attends to: the attention, and the rows.

    A role is skipped if its labels determine the position of the source: attention may then follow that position.
    """
    ways = []
    for at in roles.before(source):
        shares, places = attention[roles.names.index(at)].max(dim=-1)
        labels, stands = roles.group(group, at).cpu(), roles.group("position", source).cpu()
        if torch.stack([labels, stands]).flatten(1).unique(dim=1).shape[1] == labels.unique().numel():
            continue
        clear = [label for label, share in enumerate(shares.tolist()) if share > on]
        rows: Conditions = {}
        possible = True
        for place in {int(places[label]) for label in clear}:
            condition = Condition(group, at, tuple(label for label in clear if places[label] == place))
            near = (stands >= place) & roles.sees(stands, torch.tensor(place))
            possible &= bool((left & near)[condition.holds(roles).cpu()].all())
            rows[source, f"position {place}"] = condition
        explained = sum(shares[label].item() * (left & (labels == label)).sum().item() for label in clear)
        if possible and explained > 0:
            ways.append((explained, rows))
    return ways

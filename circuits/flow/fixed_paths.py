"""Paths of fixed patterns: a head that attends by position attends from role to role if roles have fixed positions.

If the members of a pair are neighbours, a head can join them by position. Its mechanism is then a map or an average,
which names no role. For information flow it is still a path, and also for the paper, which has only one-hot rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from jaxtyping import Bool, Float

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.mechanisms.soft import Soft
from circuits.roles import Roles
from circuits.settings import current
from circuits.utils.lazy import torch

FixedPaths = Mapping[AttentionPath, Condition | None]  # each with its condition; None if it holds on all instances


def fixed_paths(circuit: Circuit, roles: Roles) -> FixedPaths:
    """Return the paths of a circuit's fixed patterns, each with the labels of the main group with which it holds.

    A path holds with a label of its target if the average attention along it is then at least ``attended``. If it holds
    with some labels only, its two roles must stand at the same distance in all instances, as the members of a pair do:
    otherwise a head that always looks at one position would have a path to every role that can stand there. Of two
    paths from one role on one instance, the one with more attention counts. A role that always shares its position with
    an earlier named role has no path of its own. One-hot heads are not considered.

    Args:
        circuit: the circuit; its mechanisms ``map``, ``mean`` and ``given`` are considered.
        roles: the roles of some examples; attention is averaged over examples and instances.
    """
    paths: dict[AttentionPath, Condition | None] = {}
    for head, source, weights in _rows(circuit, roles):
        taken = torch.zeros_like(roles[source], dtype=torch.bool).cpu()
        seen = _seen(weights, source, roles.in_layer(head.layer))
        for target, there, _, condition in sorted(seen, key=lambda one: -one[2]):
            if not (taken & there).any():
                paths[AttentionPath(head, source, target)] = condition
                taken |= there
    return paths


def _rows(circuit: Circuit, roles: Roles) -> Iterator[tuple[Head, str, Float[torch.Tensor, "query key"]]]:
    """Yield the heads with fixed patterns, with every role that may attend."""
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, FixedPattern) and mechanism.weights.ndim == 2:  # of one layout
            if (n := mechanism.weights.shape[0]) <= (at := int(roles.positions.max())):
                raise BadInput(f"{head}: a {mechanism.name} pattern of {n} positions; a role is at position {at}")
            yield from ((head, source, mechanism.weights) for source in roles.distinct)


def _seen(
    weights: Float[torch.Tensor, "query key"], source: str, roles: Roles
) -> Iterator[tuple[str, Bool[torch.Tensor, "example instance"], float, Condition | None]]:
    """Yield the roles to which a role gives at least half of its attention: where, how much there, the condition."""
    group = roles.main_group or "position"
    at = roles.group("position", source).cpu()
    for target in roles.before(source):
        to, labels = roles.group("position", target).cpu(), roles.group(group, target).cpu()
        between = weights[at, to]
        on = [label for label in labels.unique().tolist() if between[labels == label].mean() >= current().attended]
        there = torch.isin(labels, torch.tensor(on, dtype=labels.dtype))
        if there.all() or (on and (at - to).unique().numel() == 1):
            condition = None if there.all() else Condition(group, target, tuple(on))
            yield target, there, (between * there).mean().item(), condition


def paths_on_average(circuit: Circuit, roles: Roles) -> FixedPaths:
    """Return the paths of fixed patterns and soft heads as the paper reads them: from averages over all instances.

    A path leads from a role to the role before it that gets most of its attention, if this is at least half.
    """
    average: dict[tuple[Head, str], dict[str, float]] = {}
    for head, source, weights in _rows(circuit, roles):
        at = roles.group("position", source).cpu()
        to = {target: roles.group("position", target).cpu() for target in roles.in_layer(head.layer).before(source)}
        average[head, source] = {target: weights[at, place].mean().item() for target, place in to.items()}
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, Soft):
            average |= {(head, source): to for source, to in mechanism.seen(roles.in_layer(head.layer)).items()}
    best = {place: strongest(attention, current().attended) for place, attention in average.items()}
    return {AttentionPath(*place, target): None for place, target in best.items() if target}


def strongest(attention: Mapping[str, float], least: float) -> str | None:
    """Return the role that gets most attention, if this is at least ``least``."""
    target = max(attention, key=attention.__getitem__, default=None)
    return None if target is None or attention[target] < least else target


def with_fixed_paths(circuit: Circuit, paths: FixedPaths) -> Circuit:
    """Return the circuit with one-hot mechanisms for all heads that have such paths."""
    for head in dict.fromkeys(path.head for path in paths):
        of_head = {(path.source, path.target): condition for path, condition in paths.items() if path.head == head}
        where = {ends: condition for ends, condition in of_head.items() if condition}
        circuit = circuit.with_head(head, OneHot([*of_head], where=where))
    return circuit

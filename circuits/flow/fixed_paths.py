"""Paths of fixed patterns: a head that attends by position attends from role to role if roles have fixed positions.

If the members of a pair are neighbours, a head can join them by position. Its mechanism is then a map or an average,
which names no role. For information flow it is still a path, and also for the paper, which has only one-hot rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import ON, Condition, OneHot
from circuits.roles import Roles
from circuits.utils.lazy import torch

FixedPaths = Mapping[AttentionPath, Condition | None]  # each with its condition; None if it holds on all instances


@dataclass(frozen=True, eq=False)
class _Seen:
    """The attention of a fixed pattern from one role to another: where it is at least half, and its average there."""

    target: str
    there: torch.Tensor  # [example, instance]
    attention: float
    condition: Condition | None


def fixed_paths(circuit: Circuit, roles: Roles) -> FixedPaths:
    """Return the paths of a circuit's fixed patterns, each with the labels of the main group with which it holds.

    A path holds with a label of its target if the average attention along it is then at least half. If it holds with
    some labels only, its two roles must stand at the same distance in all instances, as the members of a pair do:
    otherwise a head that always looks at one position would have a path to every role that can stand there. Of two
    paths from one role on one instance, the one with more attention counts. A role that always shares its position with
    an earlier named role has no path of its own. One-hot heads are not considered.

    Args:
        circuit: the circuit; its mechanisms ``map``, ``mean`` and ``given`` are considered.
        roles: the roles of some examples; attention is averaged over examples and instances.
    """
    found: dict[AttentionPath, Condition | None] = {}
    for head, fixed in circuit.heads.items():
        if isinstance(fixed, FixedPattern):
            for source in roles.distinct:
                taken = torch.zeros_like(roles[source], dtype=torch.bool).cpu()
                for seen in sorted(_seen(fixed, source, roles.in_layer(head.layer)), key=lambda seen: -seen.attention):
                    if not (taken & seen.there).any():
                        found[AttentionPath(head, source, seen.target)] = seen.condition
                        taken |= seen.there
    return found


def _seen(fixed: FixedPattern, source: str, roles: Roles) -> Iterator[_Seen]:
    """Yield the roles to which a role gives at least half of its attention, on some instances."""
    group = roles.main_group or "position"
    at = roles.group("position", source).cpu()
    for target in roles.before(source):
        to, labels = roles.group("position", target).cpu(), roles.group(group, target).cpu()
        between = fixed.weights[at, to]
        own = [label for label in labels.unique().tolist() if between[labels == label].mean() >= ON]
        there = torch.isin(labels, torch.tensor(own, dtype=labels.dtype))
        if there.all() or (own and (at - to).unique().numel() == 1):
            condition = None if there.all() else Condition(group, target, tuple(own))
            yield _Seen(target, there, (between * there).mean().item(), condition)


def paths_on_average(circuit: Circuit, roles: Roles) -> FixedPaths:
    """Return the paths of a circuit's fixed patterns as the paper reads them: from averages over all instances.

    A path leads from a role to the role before it that gets most of its attention, if this is at least half.
    """
    found: dict[AttentionPath, Condition | None] = {}
    for head, fixed in circuit.heads.items():
        if isinstance(fixed, FixedPattern):
            for source in roles.distinct:
                at = roles.group("position", source).cpu()
                average = {
                    target: fixed.weights[at, roles.group("position", target).cpu()].mean().item()
                    for target in roles.in_layer(head.layer).before(source)
                }
                target = max(average, key=average.__getitem__, default=None)
                if target is not None and average[target] >= ON:
                    found[AttentionPath(head, source, target)] = None
    return found


def with_fixed_paths(
    circuit: Circuit, roles: Roles, read: Callable[[Circuit, Roles], FixedPaths] = fixed_paths
) -> Circuit:
    """Return the circuit with every fixed pattern that has paths replaced with a one-hot mechanism with these paths.

    Args:
        circuit: the circuit.
        roles: the roles of some examples.
        read: the function that reads the paths: ``fixed_paths`` or ``paths_on_average``.
    """
    rows: dict[Head, dict[AttentionPath, Condition | None]] = {}
    for path, condition in read(circuit, roles).items():
        rows.setdefault(path.head, {})[path] = condition
    for head, own in rows.items():
        where = {(path.source, path.target): condition for path, condition in own.items() if condition}
        circuit = circuit.with_head(head, OneHot([(path.source, path.target) for path in own], where=where))
    return circuit

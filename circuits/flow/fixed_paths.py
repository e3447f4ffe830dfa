"""Paths of fixed patterns: a head that attends by position attends from role to role if roles have fixed positions.

If the members of a pair are neighbours, a head can join them by position. Its mechanism is then a map or an average,
which names no role. For information flow it is still a path, and also for the paper, which has only one-hot rows.
"""

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import ON, OneHot
from circuits.roles import Roles


def fixed_paths(circuit: Circuit, roles: Roles) -> tuple[AttentionPath, ...]:
    """Return the paths of a circuit's fixed patterns.

    A path leads from a role to the role before it that gets most of its attention, if this is at least half. A role
    that always shares its position with an earlier named role has no path of its own. One-hot heads are not considered.

    Args:
        circuit: the circuit; its mechanisms ``map``, ``mean`` and ``given`` are considered.
        roles: the roles of some examples; attention is averaged over examples and instances.
    """
    at = roles.positions.transpose(1, 2).cpu()  # [example, instance, role]
    found = []
    for head, fixed in circuit.heads.items():
        if isinstance(fixed, FixedPattern):
            between = fixed.weights[at[..., :, None], at[..., None, :]].mean(dim=(0, 1))
            for source in roles.distinct:
                row = dict(zip(roles.names, between[roles.names.index(source)].tolist(), strict=True))
                target = max(roles.before(source), key=row.__getitem__, default=None)
                if target is not None and row[target] >= ON:
                    found.append(AttentionPath(head, source, target))
    return tuple(found)


def with_fixed_paths(circuit: Circuit, roles: Roles) -> Circuit:
    """Return the circuit with every fixed pattern that has paths replaced with a one-hot mechanism with these paths."""
    rows: dict[Head, dict[str, str]] = {}
    for path in fixed_paths(circuit, roles):
        rows.setdefault(path.head, {})[path.source] = path.target
    for head, own in rows.items():
        circuit = circuit.with_head(head, OneHot(own))
    return circuit

"""Paths of fixed patterns: a head that looks at positions leads from role to role where roles have their positions.

Where pairs stand one after the other, a head that joins their members needs to know positions and nothing else. Its
pattern is a map or an average, which names no role. What it does is a path all the same, for information flow and for
the paper, which has one-hot rows alone.
"""

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import ON, OneHot
from circuits.roles import Roles


def fixed_paths(circuit: Circuit, roles: Roles) -> tuple[AttentionPath, ...]:
    """From every role the path to the role before it that a fixed pattern gives at least half of its attention.

    Roles that share all their positions with one named before them have no path of their own. What a one-hot head does
    elsewhere than on its paths is not looked at.

    Args:
        circuit: its mechanisms ``map``, ``mean`` and ``given`` are looked at.
        roles: of examples; attention is averaged over these and their instances.
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
    """The same circuit, with these paths in the place of the fixed patterns that lead along any."""
    rows: dict[Head, dict[str, str]] = {}
    for path in fixed_paths(circuit, roles):
        rows.setdefault(path.head, {})[path.source] = path.target
    for head, own in rows.items():
        circuit = circuit.with_head(head, OneHot(own))
    return circuit

"""The paths between roles of a circuit's one-hot heads."""

from circuits.circuit import AttentionPath, Circuit
from circuits.errors import BadInput
from circuits.mechanisms.one_hot import OneHot


def has_role_paths(circuit: Circuit) -> bool:
    """Whether a circuit has a path of a one-hot head."""
    return any(isinstance(circuit.heads[path.head], OneHot) for path in circuit.paths)


def role_paths(circuit: Circuit) -> tuple[AttentionPath, ...]:
    """Return all paths of a circuit's one-hot heads.

    Raises:
        BadInput: there is none.
    """
    paths = tuple(path for path in circuit.paths if isinstance(circuit.heads[path.head], OneHot))
    if not paths:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    return paths

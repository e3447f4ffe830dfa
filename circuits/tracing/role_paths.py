"""The paths between roles of a circuit: what tracing asks of."""

from circuits.circuit import AttentionPath, Circuit
from circuits.errors import BadInput


def role_paths(circuit: Circuit) -> tuple[AttentionPath, ...]:
    """Return all paths of a circuit that lead from a role to a role.

    Raises:
        BadInput: there is none.
    """
    paths = tuple(path for path in circuit.paths if path.joins_roles)
    if not paths:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    return paths

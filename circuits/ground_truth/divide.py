"""A path divided between two heads of a layer: each holds where the target stands at some positions only."""

from collections.abc import Collection

from circuits.circuit import AttentionPath, Circuit
from circuits.ground_truth.compile import TokenTask
from circuits.heads import Head
from circuits.mechanisms.one_hot import Condition, OneHot


def divide(circuit: Circuit, path: AttentionPath, other: Head, positions: Collection[int], task: TokenTask) -> Circuit:
    """Return a circuit in which a path holds at some positions of its target, and in another head at the rest.

    Args:
        circuit: a circuit of one-hot heads.
        path: one of its paths.
        other: the head that gets the rest; it has no path from the same role.
        positions: the positions of the target at which the path stays.
        task: the task; it knows where the target may stand.
    """
    ends = path.source, path.target
    rest = {*task.positions_of(path.target)} - {*positions}
    for head, here in ((path.head, positions), (other, rest)):
        own = circuit.heads.get(head, OneHot([ends]))
        assert isinstance(own, OneHot)
        where = {**dict(own.where), ends: Condition("position", path.target, tuple(here))}
        circuit = circuit.with_head(head, OneHot({*own.rows, ends}, own.elsewhere, where))
    return circuit

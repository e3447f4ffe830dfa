"""Information flow along the paths of a circuit, role by role (paper, section 5 and appendix B).

This is the flow of one instance, for any circuit and layout; circuits/flow/position_flow.py has that on given examples.
A position can attend to another position only if they share a piece of information (Assumption 1). It then takes all
pieces from there (Assumption 2).
"""

from collections.abc import Collection
from typing import NamedTuple

from circuits.circuit import AttentionPath, Circuit
from circuits.task import Known, Layout


class Carried(NamedTuple):
    """The information that one path of a circuit carries.

    Attributes:
        path: the path.
        new: the pieces that its source did not know before.
        allowed: whether its ends share pieces below its layer that determine where to look. If not, Assumption 1
            forbids the path, and it carries nothing.
    """

    path: AttentionPath
    new: frozenset[str]
    allowed: bool


class CircuitFlow(NamedTuple):
    """Information flow along the paths of a circuit only.

    Attributes:
        known: the pieces that every role knows after 0, 1, 2, ... layers.
        carried: the information that every path carries, from the lowest layer up.
    """

    known: tuple[Known, ...]
    carried: tuple[Carried, ...]


def circuit_flow(
    circuit: Circuit, layout: Layout, *, only: Collection[AttentionPath] | None = None, replaced: bool = False
) -> CircuitFlow:
    """Follow information along a circuit's paths only. Rows that do not lead to a role carry nothing.

    If both ends of a path stand in the same place, the path also acts in all places that look alike.

    Args:
        circuit: the circuit.
        layout: the layout of its roles.
        only: the paths to follow; by default all paths.
        replaced: whether paths carry information even if their ends share none, as replaced or observed attention does.

    Raises:
        BadInput: a path names a role that the layout does not have, or leads to a later role.
    """
    states, carried = [dict(layout.start)], []
    paths = [path for path in circuit.paths if only is None or path in only]
    for layer in range(1 + max((path.head.layer for path in paths), default=-1)):
        before, after = states[-1], dict(states[-1])
        for path in paths:
            if path.head.layer != layer:
                continue
            for source, target in layout.ends(path):
                shared = before[source] & before[target]
                alike = any(shared <= before[other] for other in layout.alike.get(target, ()))
                allowed = replaced or (bool(shared) and not alike)
                new = before[target] - before[source] if allowed else frozenset()
                carried.append(Carried(AttentionPath(path.head, source, target), new, allowed))
                after[source] |= new
        states.append(after)
    return CircuitFlow(tuple(states), tuple(carried))

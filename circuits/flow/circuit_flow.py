"""Information along the paths of a circuit (paper, section 5 and appendix B).

A position can attend to another only if they share a piece of information (Assumption 1), and then it takes all that is
there (Assumption 2).
"""

from collections.abc import Collection
from dataclasses import dataclass

from circuits.circuit import AttentionPath, Circuit
from circuits.errors import BadInput
from circuits.flow.layout import Known, Layout
from circuits.mechanisms.one_hot import OneHot


@dataclass(frozen=True)
class Carried:
    """What one path of a circuit carries.

    Attributes:
        path: the path.
        new: the pieces that its source did not know before.
        allowed: whether its ends share pieces below its layer that tell where to look; if not, Assumption 1 forbids
            it: it carries nothing.
    """

    path: AttentionPath
    new: frozenset[str]
    allowed: bool


@dataclass(frozen=True)
class CircuitFlow:
    """Information along the paths of a circuit, and nowhere else.

    Attributes:
        known: what every role knows after 0, 1, 2, ... layers.
        carried: what every path carries, from the lowest layer up.
    """

    known: tuple[Known, ...]
    carried: tuple[Carried, ...]

    def layers_until(self, role: str, piece: str) -> int | None:
        """The number of layers after which a role knows a piece; None if it never does."""
        return next((t for t, known in enumerate(self.known) if piece in known[role]), None)


def circuit_flow(
    circuit: Circuit, layout: Layout, *, only: Collection[AttentionPath] | None = None, replaced: bool = False
) -> CircuitFlow:
    """Follow the information along a circuit's paths only; rows that lead to no role carry nothing.

    Where both ends stand in the same place, the same is done in all places that look alike.

    Args:
        circuit: whose paths.
        layout: the positions.
        only: the paths to follow; all if it is not given.
        replaced: whether attention goes along a path whatever its ends share, as when it is replaced or was observed.

    Raises:
        BadInput: a path names a role that the layout does not have, or leads to one that stands behind.
    """
    states, carried = [dict(layout.start)], []
    for layer in range(1 + max((head.layer for head in circuit.useful_heads), default=-1)):
        before, after = states[-1], dict(states[-1])
        for path in circuit.paths:
            if path.head.layer != layer or (only is not None and path not in only):
                continue
            for source, target in _ends(circuit, path, layout):
                shared = before[source] & before[target]
                alike = any(shared <= before[other] for other in layout.alike.get(target, ()))
                allowed = replaced or (bool(shared) and not alike)
                new = before[target] - before[source] if allowed else frozenset()
                carried.append(Carried(AttentionPath(path.head, source, target), new, allowed))
                after[source] |= new
        states.append(after)
    return CircuitFlow(tuple(states), tuple(carried))


def _ends(circuit: Circuit, path: AttentionPath, layout: Layout) -> tuple[tuple[str, str], ...]:
    """From where to where a path leads; a head that attends to the position before joins all pairs."""
    if not isinstance(circuit.heads[path.head], OneHot):
        return layout.joined
    for role in (path.source, path.target):
        if role not in layout.start:
            raise BadInput(f"{path}: unknown role {role!r}; the roles are {', '.join(layout.roles)}")
    if layout.roles.index(path.target) > layout.roles.index(path.source):
        raise BadInput(f"{path}: leads to what stands behind, against the causal mask")
    source, target = layout.start[path.source], layout.start[path.target]
    beside = zip(layout.alike.get(path.source, ()), layout.alike.get(path.target, ()), strict=False)
    return ((path.source, path.target), *(beside if source & target & layout.places else ()))

"""A circuit that is edited."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.figures.diagram import Drawn, state_of
from circuits.mechanisms.mechanism import SIMPLE, Mechanism
from circuits.mechanisms.one_hot import OneHot


@dataclass(frozen=True)
class Draft:
    """A circuit that is edited; every change returns another draft.

    Attributes:
        drawn: the circuit with all paths that are drawn, including those that are removed for now.
        circuit: the circuit that is measured.
    """

    drawn: Circuit
    circuit: Circuit

    @property
    def paths(self) -> dict[AttentionPath, bool]:
        """All paths that are drawn, and whether the circuit has them."""
        return {path: path in self.circuit.paths for path in (*self.drawn.paths, *self.circuit.paths)}

    def arrows(self, labels: Mapping[AttentionPath, str]) -> list[Drawn]:
        """Return the paths as they are drawn; a label follows the condition."""
        on = {path: path.condition.text(path.target) for path in self.drawn.paths if path.condition}
        said = {path: "; ".join(one[path] for one in (on, labels) if path in one) for path in self.paths}
        return [Drawn(path, "in the circuit" if there else "removed", said[path]) for path, there in self.paths.items()]

    def toggled(self, path: AttentionPath) -> "Draft":
        """Return the draft with a path removed, or put back; BadInput if no such path is drawn."""
        present = self.circuit.paths
        if path in present:
            return replace(self, circuit=self.circuit.without(path))
        if path not in self.drawn.paths:
            raise BadInput(f"the circuit has no path {path}")
        circuit = self.circuit.with_head(path.head, self.drawn.heads[path.head])
        for other in circuit.paths:  # the other paths of its head stay removed
            if other.head == path.head and other not in (path, *present):
                circuit = circuit.without(other)
        return replace(self, circuit=circuit)

    def cycled(self, head: Head) -> "Draft":
        """Return the draft with a head in its next state: uniform, identity, previous, as it is drawn, intact."""
        drawn = self.drawn.heads.get(head)
        states: dict[str, Mechanism | None] = {**SIMPLE, state_of(drawn): drawn, "intact": None}
        names = [*states]
        now = state_of(self.circuit.heads.get(head))
        mechanism = states[names[(names.index(now) + 1) % len(names) if now in names else 0]]
        others = self.circuit.without_heads([head])
        return replace(self, circuit=others if mechanism is None else others.with_head(head, mechanism))

    def with_path(self, path: AttentionPath) -> "Draft":
        """Return the draft with one more path, which replaces its head's path from the same role.

        A head that was uniform, identity, previous or intact gets this path only.
        """
        return Draft(_with_path(self.drawn, path), _with_path(self.circuit, path))


def _with_path(circuit: Circuit, path: AttentionPath) -> Circuit:
    now = circuit.heads.get(path.head)
    row = path.source, path.target
    return circuit.with_head(path.head, now.with_row(*row) if isinstance(now, OneHot) else OneHot([row]))

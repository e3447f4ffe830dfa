"""When two circuits do the same: the same roles take from the same roles, in the same order where order matters."""

from dataclasses import dataclass

from circuits.circuit import AttentionPath, Circuit
from circuits.flow.circuit_flow import circuit_flow
from circuits.flow.layout import Layout


@dataclass(frozen=True, order=True)
class CanonicalForm:
    """What a circuit does, whichever heads do it.

    Attributes:
        stages: the ends of its paths, each path moved down as far as what it builds on allows.
    """

    stages: tuple[tuple[tuple[str, str], ...], ...]

    def __str__(self) -> str:
        """``pair1.second -> pair1.first; then query -> pair1.second``."""
        return "; then ".join(", ".join(f"{source} -> {target}" for source, target in stage) for stage in self.stages)


def canonical_form(circuit: Circuit, layout: Layout) -> CanonicalForm:
    """The kind of a circuit.

    A path builds on those in layers below that write where it reads: into its source, which says where to look, or into
    its target, which says what is fetched. A head that attends to the position before is a path in every pair. A path
    that repeats one in a layer below, and brings nothing new, does not count.

    Args:
        circuit: any.
        layout: its roles, and which of them stand in the same place.

    Raises:
        BadInput: a path names a role that the layout does not have, or leads to one that stands behind.
    """
    stages: dict[AttentionPath, int] = {}
    seen: set[tuple[str, str]] = set()
    carried = circuit_flow(circuit, layout, replaced=True).carried
    new = {one.path: bool(one.new) for one in carried}
    for path in sorted(new):
        if (path.source, path.target) in seen and not new[path]:
            continue
        seen.add((path.source, path.target))
        below = [
            stage
            for other, stage in stages.items()
            if other.head.layer < path.head.layer and other.source in (path.source, path.target)
        ]
        stages[path] = max(below, default=-1) + 1
    ends: list[set[tuple[str, str]]] = [set() for _ in {*stages.values()}]
    for path, stage in stages.items():
        ends[stage].add((path.source, path.target))
    return CanonicalForm(tuple(tuple(sorted(stage)) for stage in ends))


def joins_first(circuit: Circuit, layout: Layout) -> bool:
    """Whether the lowest layer with paths does nothing but join the members of pairs (paper, section 8.2, i).

    Raises:
        BadInput: as ``kind``.
    """
    paths = role_paths(circuit, layout)
    return bool(paths) and all(
        (path.source, path.target) in layout.joined for path in paths if path.head.layer == paths[0].head.layer
    )


def role_paths(circuit: Circuit, layout: Layout) -> list[AttentionPath]:
    """The paths of a circuit from the lowest layer up; one to the position before is a path in every pair.

    Raises:
        BadInput: as ``kind``.
    """
    return sorted({one.path for one in circuit_flow(circuit, layout, replaced=True).carried})

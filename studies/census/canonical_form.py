"""Canonical forms: equal if two circuits move the same information between the same roles in the same order."""

from dataclasses import dataclass

from circuits.circuit import AttentionPath, Circuit
from circuits.task import Layout
from retrieval_interp.theory.circuit_flow import circuit_flow


@dataclass(frozen=True, order=True)
class CanonicalForm:
    """The function of a circuit, whichever heads do it.

    Attributes:
        stages: the ends of the paths, stage by stage; each path is in the stage right after the paths that it builds
            on.
    """

    stages: tuple[tuple[tuple[str, str], ...], ...]

    def __str__(self) -> str:
        """Return a text such as ``pair1.second -> pair1.first; then query -> pair1.second``."""
        return "; then ".join(", ".join(f"{source} -> {target}" for source, target in stage) for stage in self.stages)


def canonical_form(circuit: Circuit, layout: Layout) -> CanonicalForm:
    """Return the canonical form of a circuit.

    A path builds on the paths in lower layers that write into its source, which determines where to look, or into its
    target, which determines what is fetched. A ``Previous`` head counts as a path in every pair. A path that repeats
    one in a lower layer and carries nothing new does not count.

    Args:
        circuit: the circuit.
        layout: the layout of its roles.

    Raises:
        BadInput: a path names a role that the layout does not have, or leads to a later role.
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
    """Whether all paths of the lowest layer with paths join the members of pairs (paper, section 8.2, i).

    Raises:
        BadInput: as ``canonical_form``.
    """
    paths = role_paths(circuit, layout)
    return bool(paths) and all(
        (path.source, path.target) in layout.joined for path in paths if path.head.layer == paths[0].head.layer
    )


def role_paths(circuit: Circuit, layout: Layout) -> list[AttentionPath]:
    """Return the paths of a circuit from the lowest layer up; a ``Previous`` head counts as a path in every pair.

    Raises:
        BadInput: as ``canonical_form``.
    """
    return sorted({one.path for one in circuit_flow(circuit, layout, replaced=True).carried})

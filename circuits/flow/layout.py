"""What each role of an example starts with: its token, and the place where it stands (paper, section 5).

one chain of the retrieval problem, D = 2
                     query     pair1.first   pair1.second   pair2.first   pair2.second
starts with          x0 p0     x0 p1         x1 p1          x1 p2         x2 p2
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Known = Mapping[str, frozenset[str]]  # for every role the pieces that it knows


@dataclass(frozen=True)
class Layout:
    """Roles and what they start with.

    Attributes:
        start: for every role, in the order of the sequence, the pieces of information that it starts with.
        places: the pieces that say where something stands; the others are tokens.
        alike: for a role those that look the same, place by place. Where one of them knows all that is shared, and in
            the same way, nothing tells the two apart, and attention does not find either.
    """

    start: Known
    places: frozenset[str] = frozenset()
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """In the order of the sequence."""
        return tuple(self.start)

    @property
    def pieces(self) -> tuple[str, ...]:
        """In the order in which they come up."""
        return tuple(dict.fromkeys(piece for own in self.start.values() for piece in sorted(own)))

    @property
    def joined(self) -> tuple[tuple[str, str], ...]:
        """The roles that stand after another one in the same place, each with that one: the members of a pair."""
        in_order = pairwise(self.roles)
        return tuple((after, role) for role, after in in_order if self.start[role] & self.start[after] & self.places)

    def renamed(self, names: Mapping[str, str]) -> "Layout":
        """The same positions, their roles under other names."""
        start = {names.get(role, role): pieces for role, pieces in self.start.items()}
        alike = {
            names.get(role, role): tuple(names.get(other, other) for other in others)
            for role, others in self.alike.items()
        }
        return Layout(start, self.places, alike)

"""Layouts: the pieces of information that each role starts with, its token and its place (paper, section 5).

One chain of the retrieval problem with D = 2:

                         query     pair1.first   pair1.second   pair2.first   pair2.second
    starts with          x0 p0     x0 p1         x1 p1          x1 p2         x2 p2
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

Known = Mapping[str, frozenset[str]]  # the pieces that every role knows


@dataclass(frozen=True)
class Layout:
    """Roles, and the pieces of information that they start with.

    Attributes:
        start: for every role, in the order of the sequence, the pieces of information that it starts with.
        places: the pieces that are places; all others are tokens.
        alike: for some roles, the roles that look the same, place by place. If one of these knows all pieces that the
            ends of a path share, attention cannot tell it from the path's target, and the path carries nothing.
    """

    start: Known
    places: frozenset[str] = frozenset()
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles, in the order of the sequence."""
        return tuple(self.start)

    @property
    def pieces(self) -> tuple[str, ...]:
        """All pieces, in the order of their first role."""
        return tuple(dict.fromkeys(piece for own in self.start.values() for piece in sorted(own)))

    @property
    def joined(self) -> tuple[tuple[str, str], ...]:
        """The neighbouring roles in the same place, the later one first: the members of pairs."""
        in_order = pairwise(self.roles)
        return tuple((after, role) for role, after in in_order if self.start[role] & self.start[after] & self.places)

    def renamed(self, names: Mapping[str, str]) -> "Layout":
        """Return the same layout with other role names."""
        start = {names.get(role, role): pieces for role, pieces in self.start.items()}
        alike = {
            names.get(role, role): tuple(names.get(other, other) for other in others)
            for role, others in self.alike.items()
        }
        return Layout(start, self.places, alike)

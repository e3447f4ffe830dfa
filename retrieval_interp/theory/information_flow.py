"""Information flow: the pieces that each position can know after each layer (paper, section 5 and appendix B).

Every position starts with pieces of information: its token, and the place of its pair. A position can attend to another
position only if they share a piece (Assumption 1). It then takes all pieces from there (Assumption 2).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from circuits.task import Known, Layout


def spread(layout: Layout, *, causal: bool, by_position: bool = False) -> Iterator[Known]:
    """Yield the pieces that every role knows after 0, 1, 2, ... layers of any number of heads, until nothing changes.

    Every position takes all that it can find, as soon as it can find it. If no roles look alike, this is the most that
    a position can know. If some do, it need not be, because a position that knows less can be easier to find.

    Args:
        layout: the positions and the pieces that they start with.
        causal: whether a position sees only itself and those before it; without a mask it sees all.
        by_position: whether heads can fetch all members of a pair at once by their fixed positions, against
            Assumption 1, and an MLP can compare them afterwards. A pair is then found by what any of its members knows.
    """
    pieces, roles = layout.pieces, layout.roles
    number = {piece: i for i, piece in enumerate(pieces)}
    known = [sum(1 << number[piece] for piece in start) for start in layout.start.values()]
    places = sum(1 << number[piece] for piece in layout.places & {*pieces})
    seen = [range(place + 1 if causal else len(roles)) for place in range(len(roles))]
    beside = [[one for one in range(len(roles)) if known[one] & known[place] & places] for place in range(len(roles))]
    ways = _Ways(layout, known)
    while True:
        yield {
            role: frozenset(p for i, p in enumerate(pieces) if held >> i & 1)
            for role, held in zip(roles, known, strict=True)
        }
        taken: list[list[int]] = []
        for place, held in enumerate(known):
            taken.append([])
            for other in seen[place]:
                together = [one for one in beside[other] if one in seen[place]] if by_position else [other]
                shared = held & _union(known[one] for one in together)
                if shared and not ways.confused(shared, other, seen[place]):
                    taken[place] += together
        after = [held | _union(known[other] for other in taken[place]) for place, held in enumerate(known)]
        if after == known:
            return
        ways.learn(known, after, taken)
        known = after


class _Ways:
    """The ways in which positions that look alike learned their pieces.

    A way consists of the layer, the kind of position that gave the piece, what was shared with that position, and the
    way in which that position knew the piece. If two positions that look alike know a piece in the same way, the piece
    does not distinguish them. A piece that is learned in a later layer is known in another way, so the entries for
    earlier layers do not change.
    """

    def __init__(self, layout: Layout, known: Sequence[int]) -> None:
        self._alike = [[layout.roles.index(other) for other in layout.alike.get(role, ())] for role in layout.roles]
        self._kind = [min((place, *others)) for place, others in enumerate(self._alike)]
        self._layer = 0
        self._numbers: dict[object, int] = {}
        self._ways: list[dict[int, frozenset[int]]] = [{} for _ in known]
        # For every piece, as bits: the positions that look alike and know it in the same ways.
        self._same: list[dict[int, int]] = [{} for _ in known]
        if any(self._alike):
            first = frozenset({self._number("first")})
            self._settle([dict.fromkeys(_pieces(start), first) for start in known])

    def confused(self, shared: int, target: int, seen: range) -> bool:
        """Whether the pieces shared with a target also lead to a position that is seen and looks like the target."""
        if not self._alike[target]:
            return False
        others = (1 << len(seen)) - 1
        for piece in _pieces(shared):
            others &= self._same[target].get(piece, 0)  # 0 if the target does not know the piece itself
            if not others:
                return False
        return True

    def learn(self, before: Sequence[int], after: Sequence[int], taken: Sequence[Sequence[int]]) -> None:
        """Record the ways in which every position learned its new pieces in a layer; earlier pieces keep their ways."""
        if not any(self._alike):
            return
        self._layer += 1
        learned: list[dict[int, frozenset[int]]] = []
        for place, others in enumerate(taken):
            new: dict[int, set[int]] = {piece: set() for piece in _pieces(after[place] & ~before[place])}
            for other in others if new else ():
                given = new.keys() & self._ways[other].keys()
                how = (self._layer, self._kind[other], self._match(place, other)) if given else ()
                for piece in given:
                    new[piece].add(self._number((*how, self._ways[other][piece])))
            learned.append({piece: frozenset(how_known) for piece, how_known in new.items()})
        self._settle(learned)

    def _settle(self, learned: Sequence[Mapping[int, frozenset[int]]]) -> None:
        for place, new in enumerate(learned):
            self._ways[place].update(new)
            for piece, ways in new.items():
                same = (one for one in self._alike[place] if ways <= learned[one].get(piece, frozenset()))
                self._same[place][piece] = sum(1 << one for one in same)

    def _match(self, place: int, other: int) -> int:
        """Return a number for what two positions share: for every shared piece, the ways in which both know it."""
        these, others = self._ways[place], self._ways[other]
        return self._number(frozenset((these[piece], others[piece]) for piece in these.keys() & others.keys()))

    def _number(self, way: object) -> int:
        return self._numbers.setdefault(way, len(self._numbers))


def _union(known: Iterable[int]) -> int:
    return reduce(or_, known, 0)


def _pieces(known: int) -> list[int]:
    """Return the numbers of the known pieces."""
    return [i for i in range(known.bit_length()) if known >> i & 1]


def layers_until(layout: Layout, role: str, piece: str, *, causal: bool, by_position: bool = False) -> int | None:
    """Return the number of layers after which a role can know a piece; None if it never can.

    Args:
        layout: the positions and the pieces that they start with.
        role: the role that is to know the piece.
        piece: the piece, such as ``x3``.
        causal: as in ``spread``: whether there is a causal mask.
        by_position: as in ``spread``: whether heads can also fetch pairs by position, against Assumption 1.
    """
    states = spread(layout, causal=causal, by_position=by_position)
    return next((t for t, known in enumerate(states) if piece in known[role]), None)

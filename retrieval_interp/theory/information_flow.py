"""Who can know what, and after how many layers (paper, section 5 and appendix B).

Every position starts with pieces of information: its token, and the place of its pair. A position can attend to another
only if they share a piece (Assumption 1), and then it takes all that is there (Assumption 2).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_

from circuits.flow.layout import Known, Layout


def spread(
    layout: Layout, *, causal: bool, by_position: bool = False, hidden: Collection[tuple[str, str]] = ()
) -> Iterator[Known]:
    """What every role knows after 0, 1, 2, ... layers of any number of heads, until nobody learns anything more.

    Everybody takes all that can be found, as soon as it can be found. Where no roles look alike this is the most that
    anybody can know. Where some do it need not be: to know less may be to be found more easily.

    Args:
        layout: the positions.
        causal: whether a position sees only itself and those before it; without a mask it sees all.
        by_position: against Assumption 1: whether heads may fetch whatever stands at fixed positions, all members of a
            pair at once, and an MLP compare it afterwards. Then a pair is found by what any of its members knows.
        hidden: what another mask hides: from which role which one cannot be seen.
    """
    pieces, roles = layout.pieces, layout.roles
    number = {piece: i for i, piece in enumerate(pieces)}
    known = [sum(1 << number[piece] for piece in own) for own in layout.start.values()]
    places = sum(1 << number[piece] for piece in layout.places & {*pieces})
    seen = [
        [i for i, other in enumerate(roles) if (i <= place or not causal) and (role, other) not in hidden]
        for place, role in enumerate(roles)
    ]
    bits = [sum(1 << i for i in own) for own in seen]
    beside = [[one for one in range(len(roles)) if known[one] & known[place] & places] for place in range(len(roles))]
    ways = _Ways(layout, known)
    while True:
        yield {
            role: frozenset(p for i, p in enumerate(pieces) if own >> i & 1)
            for role, own in zip(roles, known, strict=True)
        }
        found: list[list[int]] = []
        for place, own in enumerate(known):
            found.append([])
            for other in seen[place]:
                together = [one for one in beside[other] if bits[place] >> one & 1] if by_position else [other]
                there = _union(known[one] for one in together)
                if own & there and not ways.confused(own & there, other, bits[place]):
                    found[place] += together
        after = [own | _union(known[other] for other in found[place]) for place, own in enumerate(known)]
        if after == known:
            return
        ways.learn(known, after, found)
        known = after


class _Ways:
    """In which ways positions that look alike came to know their pieces.

    A way is a layer, what kind of position told the piece, what was shared with that one, and how it knew the piece.

    Two of them that know the same in the same way cannot be told apart by it. Whoever learns a piece in a later layer
    knows it in another way, so that what is settled once stays so.
    """

    def __init__(self, layout: Layout, known: Sequence[int]) -> None:
        self._alike = [[layout.roles.index(other) for other in layout.alike.get(role, ())] for role in layout.roles]
        self._looks = [min((place, *others)) for place, others in enumerate(self._alike)]
        self._layer = 0
        self._numbers: dict[object, int] = {}
        self._ways: list[dict[int, frozenset[int]]] = [{} for _ in known]
        self._same: list[dict[int, int]] = [{} for _ in known]  # who else knows a piece in the same ways, as bits
        if any(self._alike):
            own = frozenset({self._number("own")})
            self._settle([dict.fromkeys(_pieces(start), own) for start in known])

    def confused(self, shared: int, target: int, seen: int) -> bool:
        """Whether what is shared with a position leads as well to one that is seen and looks like it."""
        if not self._alike[target]:
            return False
        others = seen
        for piece in _pieces(shared):
            others &= self._same[target].get(piece, 0)  # what it does not know itself tells it apart
            if not others:
                return False
        return True

    def learn(self, before: Sequence[int], after: Sequence[int], found: Sequence[Sequence[int]]) -> None:
        """Note how everybody learned what is new in a layer; of what was known before, the first ways stay."""
        if not any(self._alike):
            return
        self._layer += 1
        learned: list[dict[int, frozenset[int]]] = []
        for place, others in enumerate(found):
            told: dict[int, set[int]] = {piece: set() for piece in _pieces(after[place] & ~before[place])}
            for other in others if told else ():
                new = told.keys() & self._ways[other].keys()
                how = (self._layer, self._looks[other], self._match(place, other)) if new else ()
                for piece in new:
                    told[piece].add(self._number((*how, self._ways[other][piece])))
            learned.append({piece: frozenset(own) for piece, own in told.items()})
        self._settle(learned)

    def _settle(self, learned: Sequence[Mapping[int, frozenset[int]]]) -> None:
        for place, own in enumerate(learned):
            self._ways[place].update(own)
            for piece, ways in own.items():
                also = (one for one in self._alike[place] if ways <= learned[one].get(piece, frozenset()))
                self._same[place][piece] = sum(1 << one for one in also)

    def _match(self, place: int, other: int) -> int:
        """What the one shares with the other, by the ways in which each of them knows it."""
        own, there = self._ways[place], self._ways[other]
        return self._number(frozenset((own[piece], there[piece]) for piece in own.keys() & there.keys()))

    def _number(self, way: object) -> int:
        return self._numbers.setdefault(way, len(self._numbers))


def _union(known: Iterable[int]) -> int:
    return reduce(or_, known, 0)


def _pieces(known: int) -> list[int]:
    """The numbers of the pieces that are known."""
    return [i for i in range(known.bit_length()) if known >> i & 1]


def layers_until(layout: Layout, role: str, piece: str, *, causal: bool, by_position: bool = False) -> int | None:
    """The number of layers after which a role can know a piece; None if it never can."""
    states = spread(layout, causal=causal, by_position=by_position)
    return next((t for t, known in enumerate(states) if piece in known[role]), None)

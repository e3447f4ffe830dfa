"""Small changes of a whole circuit: what a search may do next."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from circuits.circuit import Circuit, Head, Path
from circuits.fixed_pattern import Fixed
from circuits.hypotheses import candidates, strongest
from circuits.mechanisms import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.one_hot import OneHot
from circuits.roles import Roles

MERGED_HEADS = 32  # at most: the ways to merge them grow with the square of their number

Noticed = Mapping[Head, Mapping[str, tuple[str, ...]]]  # for every head the paths that its attention shows


def without_one_path(circuit: Circuit) -> Iterator[Circuit]:
    """Every way to take one path away: its row alone, as step 6 does, and with the rest of a head that has no other."""
    for path in circuit.paths:
        mechanism = circuit.heads[path.head]
        ways = [_made(mechanism, path, instead) for instead in REPLACEMENTS]
        if isinstance(mechanism, OneHot):
            if len(mechanism.paths) > 1:
                ways.insert(0, mechanism.without_row(path.source, path.target))
            else:
                ways += [
                    mechanism.with_row(path.source, row, path.target)
                    for row in REPLACEMENTS
                    if row != mechanism.elsewhere
                ]
        yield from (circuit.with_head(path.head, way) for way in ways)


def _made(mechanism: Mechanism, path: Path, instead: str) -> Mechanism:
    """A mechanism with one path's row made uniform or identity; the whole head if that was its only path."""
    if isinstance(mechanism, OneHot) and len(mechanism.paths) > 1:
        return mechanism.with_row(path.source, instead, path.target)
    return SIMPLE[instead]


def redirections(circuit: Circuit, roles: Roles) -> Iterator[Circuit]:
    """Every way to lead one path to another role that its source can see."""
    for path in circuit.paths:
        if isinstance(circuit.heads[path.head], OneHot):
            others = (role for source, role in roles.pairs if source == path.source and role != path.target)
            yield from (circuit.redirected(path, role) for role in others)


def moves(circuit: Circuit, noticed: Noticed) -> Iterator[Circuit]:
    """Every way to let another head, whose attention shows it, carry one path."""
    for path in circuit.paths:
        for instead in REPLACEMENTS:
            without = circuit.with_head(path.head, _made(circuit.heads[path.head], path, instead))
            for head, mechanism in without.heads.items():
                if head == path.head or path.target not in noticed[head].get(path.source, ()):
                    continue
                if isinstance(mechanism, OneHot) and path.source not in dict(mechanism.rows):
                    yield without.with_head(head, mechanism.with_row(path.source, path.target))
                elif mechanism.name in REPLACEMENTS:
                    yield without.with_head(head, OneHot({path.source: path.target}, mechanism.name))


def merged(circuit: Circuit, heads: Sequence[Head], roles: Roles) -> Iterator[tuple[Head, Head, Circuit]]:
    """Every way to let one of these heads carry all paths of another too: the head emptied, the other, the circuit.

    Heads that say different things of one role cannot be merged, nor heads whose paths have no names, or are there on
    some chains only.
    """
    rows = {head: _rows(circuit.heads[head], roles) for head in heads}
    for giver, taker in permutations([head for head in heads if rows[head]], 2):
        together = {**rows[taker], **rows[giver]}
        if together == {**rows[giver], **rows[taker]}:
            for instead in REPLACEMENTS:
                emptied = circuit.with_head(giver, SIMPLE[instead])
                yield giver, taker, emptied.with_head(taker, OneHot(together, _elsewhere(circuit.heads[taker])))


def _rows(mechanism: Mechanism, roles: Roles) -> dict[str, str]:
    """What a mechanism says of each role; the position before is a role too, where it has a name."""
    if isinstance(mechanism, OneHot):
        return {} if mechanism.where else dict(mechanism.rows)
    if not isinstance(mechanism, Previous):
        return {}
    return {source: target for source, target in roles.pairs if bool((roles[source] == roles[target] + 1).all())}


def _elsewhere(mechanism: Mechanism) -> str | Fixed:
    return mechanism.elsewhere if isinstance(mechanism, OneHot) else "zero"


def neighbours(circuit: Circuit, roles: Roles, noticed: Noticed) -> Iterator[Circuit]:
    """Redirections, rows taken away or added (those that attention shows), any other mechanism of a head; and moves and
    mergers, which change two heads."""
    yield from redirections(circuit, roles)
    for head, mechanism in circuit.heads.items():
        others = (other for other in _others(mechanism, strongest(noticed[head])) if other != mechanism)
        yield from (circuit.with_head(head, other) for other in others)
    yield from moves(circuit, noticed)
    yield from (together for _, _, together in merged(circuit, circuit.useful_heads, roles))


def _others(mechanism: Mechanism, rows: Mapping[str, str]) -> Iterator[Mechanism]:
    """What a head might do instead, from what it does and the rows that its attention shows."""
    if isinstance(mechanism, OneHot):
        yield from (mechanism.with_row(source, target) for source, target in rows.items())
        rows = dict(mechanism.rows)
        yield from (mechanism.without_row(source) for source in rows if len(rows) > 1)
    yield from candidates(rows)


def oddity(circuit: Circuit) -> int:
    """How many rows of one-hot heads are made uniform or identity one by one, which nobody would write at first."""
    one_hots = [mechanism for mechanism in circuit.heads.values() if isinstance(mechanism, OneHot)]
    return sum(len(mechanism.rows) - len(mechanism.paths) for mechanism in one_hots)

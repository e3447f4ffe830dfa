"""Two heads made one: would fewer heads do?"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from circuits.circuit import Circuit, Head
from circuits.fixed_pattern import Fixed
from circuits.mechanisms import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.one_hot import OneHot
from circuits.roles import Roles

MERGED_HEADS = 32  # at most: the ways to merge them grow with the square of their number


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

"""Two heads made one: would fewer heads do?"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from circuits.circuit import Circuit, Head
from circuits.fixed_pattern import Fixed
from circuits.mechanisms import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.one_hot import Condition, Ends, OneHot
from circuits.roles import Roles

Rows = dict[Ends, Condition | None]
MERGED_HEADS = 32  # at most: the ways to merge them grow with the square of their number


def merged(circuit: Circuit, heads: Sequence[Head], roles: Roles) -> Iterator[tuple[Head, Head, Circuit]]:
    """Every way to let one of these heads carry all paths of another too: the head emptied, the other, the circuit.

    Heads that say different things of one role on one chain cannot be merged, nor heads whose paths have no names.
    """
    rows = {head: _rows(circuit.heads[head], roles) for head in heads}
    for giver, taker in permutations([head for head in heads if rows[head]], 2):
        together = _together(rows[taker], rows[giver], roles)
        if together is not None:
            where = {ends: condition for ends, condition in together.items() if condition is not None}
            both = circuit.with_head(taker, OneHot([*together], _elsewhere(circuit.heads[taker]), where))
            for instead in REPLACEMENTS:
                yield giver, taker, both.with_head(giver, SIMPLE[instead])


def _rows(mechanism: Mechanism, roles: Roles) -> Rows:
    """What a mechanism says of each role; the position before is a role too, where it has a name."""
    if isinstance(mechanism, OneHot):
        return {ends: dict(mechanism.where).get(ends) for ends in mechanism.rows}
    if not isinstance(mechanism, Previous):
        return {}
    return {ends: None for ends in roles.pairs if bool((roles[ends[0]] == roles[ends[1]] + 1).all())}


def _together(one: Rows, other: Rows, roles: Roles) -> Rows | None:
    """The rows of both heads; None where they lead one role to different places on one chain."""
    for (source, target), condition in one.items():
        for (its_source, its_target), its_condition in other.items():
            if source == its_source and target != its_target and _meet(condition, its_condition, roles):
                return None
    together = {**one, **other}
    for ends in {*one} & {*other}:
        a, b = one[ends], other[ends]
        together[ends] = None if a is None or b is None else a | b
    return together


def _meet(one: Condition | None, other: Condition | None, roles: Roles) -> bool:
    """Whether two rows are there on one chain, by their conditions; without one a row is there on all."""
    if one is None or other is None:
        return True
    return bool((one.holds(roles) & other.holds(roles)).any())


def _elsewhere(mechanism: Mechanism) -> str | Fixed:
    return mechanism.elsewhere if isinstance(mechanism, OneHot) else "zero"

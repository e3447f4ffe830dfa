"""Two heads made one: would fewer heads do?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from circuits.checks.removals import PathResult
from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.mechanisms.one_hot import Condition, Ends, OneHot
from circuits.roles import Roles

Rows = dict[Ends, Condition | None]
MERGED_HEADS = 32  # at most: the ways to merge them grow with the square of their number


@dataclass(frozen=True)
class Merge:
    """All paths of one head carried by another instead, which then attends for both.

    Attributes:
        giver: the head that is left without a path.
        taker: the head that carries them too.
        loss: of the whole circuit, the emptied head uniform or identity, whichever is lower.
    """

    giver: Head
    taker: Head
    loss: Loss

    def __str__(self) -> str:
        return f"{self.giver} into {self.taker}"


def merges(test: SequentialTest, circuit: Circuit, paths: Sequence[PathResult]) -> tuple[Merge, ...]:
    """Heads that the whole circuit needs, two at a time made one; of very many those that it would miss least."""
    costs: dict[Head, float] = {}
    for result in paths:
        if result.needed == "directly":
            least = min(loss.mean for loss in result.losses.values())
            costs[result.path.head] = max(costs.get(result.path.head, 0.0), least)
    needed = sorted(sorted(costs, key=costs.__getitem__)[:MERGED_HEADS])
    tried = dict(enumerate(merged(circuit, needed, test.examples.roles)))
    best: dict[tuple[Head, Head], Merge] = {}
    for place, decided in test.test({place: changed for place, (*_, changed) in tried.items()}).items():
        giver, taker, _ = tried[place]
        if (giver, taker) not in best or decided.loss.mean < best[giver, taker].loss.mean:
            best[giver, taker] = Merge(giver, taker, decided.loss)
    return tuple(sorted(best.values(), key=lambda merge: merge.loss.mean))


def merged(circuit: Circuit, heads: Sequence[Head], roles: Roles) -> Iterator[tuple[Head, Head, Circuit]]:
    """Every way to let one of these heads carry all paths of another too: the head emptied, the other, the circuit.

    Heads that say different things of one role on one instance cannot be merged, nor heads whose paths have no names.
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
    return dict.fromkeys(roles.adjacent)


def _together(one: Rows, other: Rows, roles: Roles) -> Rows | None:
    """The rows of both heads; None where they lead one role to different places on one instance."""
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
    """Whether two rows are there on one instance, by their conditions; without one a row is there on all."""
    if one is None or other is None:
        return True
    return bool((one.holds(roles) & other.holds(roles)).any())


def _elsewhere(mechanism: Mechanism) -> str | FixedPattern:
    return mechanism.elsewhere if isinstance(mechanism, OneHot) else "zero"

"""Two heads merged into one: are fewer heads enough?"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from circuits.checks.experiment import Experiment, listed
from circuits.checks.removals import PathResult
from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.mechanisms.one_hot import Condition, Ends, OneHot
from circuits.results import Decision, Result, Verdict
from circuits.roles import Roles
from circuits.settings import current

Rows = dict[Ends, Condition | None]


class Merge(Result):
    """All paths of one head moved to another head, which keeps its own paths.

    Attributes:
        giver: the head that loses its paths.
        taker: the head that takes them over.
        loss: the loss of the whole circuit after the merge, with the giver uniform or identity, whichever is lower.
    """

    giver: Head
    taker: Head
    loss: Loss

    def __str__(self) -> str:
        return f"{self.giver} into {self.taker}"


def merges(experiment: Experiment, paths: Sequence[PathResult]) -> tuple[Merge, ...]:
    """Merge every two heads that the whole circuit needs; of many heads, only those that cost least to remove.

    Args:
        experiment: the experiment; nothing is tried if its combined loss is not below the threshold.
        paths: the results of step 6, which say what each head's removal costs.

    Returns:
        The merges with the lowest loss for every pair of heads, lowest loss first.
    """
    test, circuit = experiment.strict, experiment.circuit
    if experiment.combined.mean >= experiment.threshold:
        return ()
    costs: dict[Head, float] = {}
    for result in paths:
        if result.needed == "directly":
            least = min(loss.mean for loss in result.losses.values())
            costs[result.path.head] = max(costs.get(result.path.head, 0.0), least)
    needed = sorted(sorted(costs, key=costs.__getitem__)[: current().merged_heads])
    tried = dict(enumerate(merged(circuit, needed, test.roles)))
    best: dict[tuple[Head, Head], Merge] = {}
    for place, decided in test.test({place: changed for place, (*_, changed) in tried.items()}).items():
        giver, taker, _ = tried[place]
        if (giver, taker) not in best or decided.loss.mean < best[giver, taker].loss.mean:
            best[giver, taker] = Merge(giver=giver, taker=taker, loss=decided.loss)
    return tuple(sorted(best.values(), key=lambda merge: merge.loss.mean))


def merged(circuit: Circuit, heads: Sequence[Head], roles: Roles) -> Iterator[tuple[Head, Head, Circuit]]:
    """Yield every merge of two of these heads: the giver, the taker, and the circuit after the merge.

    Two heads cannot be merged if they lead one role to different targets on one instance, if a head's paths have no
    roles, or if they leave the window of the taker's layer.
    """
    rows = {head: _rows(circuit.heads[head], roles) for head in heads}
    for giver, taker in permutations([head for head in heads if rows[head]], 2):
        together = _together(rows[taker], rows[giver], roles)
        if together is not None:
            where = {ends: condition for ends, condition in together.items() if condition is not None}
            one = OneHot([*together], _elsewhere(circuit.heads[taker]), where)
            if one.out_of_window(roles.in_layer(taker.layer)):
                continue
            both = circuit.with_head(taker, one)
            for instead in REPLACEMENTS:
                yield giver, taker, both.with_head(giver, SIMPLE[instead])


def _rows(mechanism: Mechanism, roles: Roles) -> Rows:
    """Return a mechanism's rows; for ``Previous`` these join the roles that are always adjacent."""
    if isinstance(mechanism, OneHot):
        return {ends: dict(mechanism.where).get(ends) for ends in mechanism.rows}
    if not isinstance(mechanism, Previous):
        return {}
    return dict.fromkeys(roles.adjacent)


def _together(one: Rows, other: Rows, roles: Roles) -> Rows | None:
    """Return the rows of both heads, or None if they lead one role to different targets on one instance."""
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
    """Whether two rows hold on a common instance; a row without a condition holds on all."""
    if one is None or other is None:
        return True
    return bool((one.holds(roles) & other.holds(roles)).any())


def _elsewhere(mechanism: Mechanism) -> str | FixedPattern:
    return mechanism.elsewhere if isinstance(mechanism, OneHot) else "zero"


def merging(experiment: Experiment, found: Sequence[Merge], paths: Sequence[PathResult]) -> Verdict:
    """Return whether no merge of two heads does as well, against the strict threshold."""
    strict, heads = experiment.strict.threshold, experiment.circuit.heads
    by_users = [head for head in experiment.circuit.heads_with_paths if not heads[head].builtin]
    decision: Decision = "undecided"
    fewer = [f"{merge} ({merge.loss})" for merge in found if merge.loss.mean < strict]
    if experiment.combined.mean >= strict:
        sentence = f"Not tested: the loss of the circuit is not below {strict:.3g}."
    elif by_users:
        sentence = f"Not tested: heads with a mechanism of your own cannot be merged ({listed(by_users, ', ')})."
    elif not found:
        decision, sentence = "holds", "No two needed heads can be merged: at most one, or they lead a role apart."
    elif fewer:
        sentence = f"Fewer heads are enough. The loss stays below {strict:.3g} after merging {listed(fewer)}."
    elif any(merge.loss.near(strict) for merge in found):
        sentence = (
            f"Undecided whether merging {found[0]} ({found[0].loss}) stays below {strict:.3g}. Take more examples."
        )
    else:
        decision = "holds"
        sentence = (
            f"None of {len(found)} merges of two heads keeps the loss below {strict:.3g}. The best is {found[0]} "
        )
        sentence += f"({found[0].loss})."
        needed = len({path.path.head for path in paths if path.needed == "directly"})
        if needed > current().merged_heads:
            sentence += f" Only the {current().merged_heads} least costly of {needed} heads were tried."
    return Verdict(name="merges", decision=decision, sentence=sentence)

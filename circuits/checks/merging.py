"""Two heads merged into one: are fewer heads enough?"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from circuits.checks.experiment import MORE, Experiment, Lists, verdict
from circuits.checks.removals import PathResult
from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.mechanisms.one_hot import Condition, Ends, OneHot
from circuits.results import Result, Verdict
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
    tried = [*merged(circuit, needed, test.roles)]
    losses = [decided.loss for decided in test.test({place: one for place, (*_, one) in enumerate(tried)}).values()]
    each = zip(tried, losses, strict=True)
    best: dict[tuple[Head, Head], Merge] = {}
    for (giver, taker, _), loss in sorted(each, key=lambda one: one[1].mean):
        best.setdefault((giver, taker), Merge(giver=giver, taker=taker, loss=loss))
    return tuple(best.values())


def merged(circuit: Circuit, heads: Sequence[Head], roles: Roles) -> Iterator[tuple[Head, Head, Circuit]]:
    """Yield every merge of two of these heads: the giver, the taker, and the circuit after the merge.

    Two heads cannot be merged if they lead one role to different targets on one instance, if a head's paths have no
    roles, or if they leave the window of the taker's layer.
    """
    rows = {head: _rows(circuit.heads[head], roles) for head in heads}
    for giver, taker in permutations([head for head in heads if rows[head]], 2):
        together, keeper = _together(rows[taker], rows[giver], roles), circuit.heads[taker]
        if together is not None:
            where = {ends: condition for ends, condition in together.items() if condition is not None}
            one = OneHot([*together], keeper.elsewhere if isinstance(keeper, OneHot) else "zero", where)
            if not one.out_of_window(roles.in_layer(taker.layer)):
                both = circuit.with_head(taker, one)
                yield from ((giver, taker, both.with_head(giver, SIMPLE[instead])) for instead in REPLACEMENTS)


def _rows(mechanism: Mechanism, roles: Roles) -> Rows:
    """Return a mechanism's rows; for ``Previous`` these join the roles that are always adjacent."""
    if isinstance(mechanism, OneHot):
        return {ends: dict(mechanism.where).get(ends) for ends in mechanism.rows}
    return dict.fromkeys(roles.adjacent) if isinstance(mechanism, Previous) else {}


def _together(one: Rows, other: Rows, roles: Roles) -> Rows | None:
    """Return the rows of both heads, or None if they lead one role to different targets on one instance."""
    together = {**one, **other}
    for (source, target), a in one.items():
        for (its_source, its_target), b in other.items():
            apart = source == its_source and target != its_target
            if apart and (a is None or b is None or (a.holds(roles) & b.holds(roles)).any()):  # on a common instance
                return None
        if (source, target) in other:
            b = other[source, target]
            together[source, target] = None if a is None or b is None else a | b
    return together


def merging(experiment: Experiment, tried: Sequence[Merge], paths: Sequence[PathResult]) -> Verdict:
    """Return whether no merge of two heads does as well, against the strict threshold."""
    strict, heads, most = experiment.strict.threshold, experiment.circuit.heads, current().merged_heads
    low, losses = f"{strict:.3g}", {f"{merge} ({merge.loss})": merge.loss for merge in tried}
    fewer = [merge for merge, loss in losses.items() if loss.mean < strict]
    near = [merge for merge, loss in losses.items() if loss.near(strict) and merge not in fewer]
    by_users = [head for head in experiment.circuit.heads_with_paths if not heads[head].builtin]
    undecided: Lists = {
        f"Fewer heads are enough. The loss stays below {low} after merging ": fewer,
        f"{MORE} The loss is close to {low} after merging ": near,
    }
    if experiment.combined.mean >= strict:
        undecided = {"Not tested: the loss of the circuit is not below ": [low]}
    elif by_users:
        undecided = {"Not tested: heads with a mechanism of your own cannot be merged: ": by_users}
    if any(undecided.values()):
        return verdict("merges", "", undecided=undecided)
    needed = len({path.path.head for path in paths if path.needed == "directly"})
    others = [needed - most] if needed > most else []
    beyond = ", or out of a window" if experiment.test.roles.windows else ""
    said = f"Needed heads: {needed}. No two can be merged, because they attend from one role to different ones{beyond}."
    if losses:
        said = f"None of {len(tried)} merges of two heads keeps the loss below {low}. The best is {next(iter(losses))}."
    elif needed < 2:
        said = f"Needed heads: {needed}. There is nothing to merge."
    return verdict("merges", said, undecided={"Not tried, of the needed heads: ": others})

"""Unique: would another circuit do as well? Information beside the verdict, and no part of it.

A path may lead to another role, and two heads may be one (as in the paper's transformer A, section 8.2), with no more
than the least effect on the loss. Such a circuit cannot be told from the first by its loss.
"""

from collections.abc import Iterator, Sequence
from itertools import permutations

from circuits.checks.experiment import Experiment, listed
from circuits.checks.minimality import Removal
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE, Mechanism, Previous
from circuits.mechanisms.one_hot import Condition, Ends, OneHot
from circuits.results import Result
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import LaidOut

Rows = dict[Ends, Condition | None]


class Merge(Result):
    """All paths of one head moved to another head, which keeps its own paths.

    Attributes:
        giver: the head that loses its paths.
        taker: the head that takes them over.
        tested: the loss of the circuit after the merge, with the giver uniform or identity, whichever is lower.
    """

    giver: Head
    taker: Head
    tested: DecidedLoss

    def __str__(self) -> str:
        return f"{self.giver} into {self.taker} ({self.tested.loss})"


class Uniqueness(Result):
    """Other circuits, with their losses; an excess is that over the circuit's own loss.

    Attributes:
        targets: for every path that matters directly, the loss with another role as its target, for every role before
            its source that does not hold the same symbol by the task's layout.
        merges: every merge of two heads whose paths matter directly, lowest loss first.
    """

    targets: dict[AttentionPath, dict[str, DecidedLoss]]
    merges: tuple[Merge, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What does as well, or may, in sentences."""
        tried = sum(map(len, self.targets.values()))
        other = [f"{path} ({role})" for path, role in self.as_good]
        fewer = [str(merge) for merge in self.merges if merge.tested.decision != "above"]
        said = f"Tried: other targets of paths, {tried}; merges of heads, {len(self.merges)}"
        if not other and not fewer:
            return (f"{said}; none does as well.",)
        found = [f"another target: {listed(other)}"] * bool(other) + [f"fewer heads: {listed(fewer)}"] * bool(fewer)
        return (f"{said}; these may do as well: {'; '.join(found)}.",)

    @property
    def as_good(self) -> tuple[tuple[AttentionPath, str], ...]:
        """The paths and other targets without a clear effect on the loss."""
        each = ((path, role, one) for path, roles in self.targets.items() for role, one in roles.items())
        return tuple((path, role) for path, role, one in each if one.decision != "above")


def uniqueness(experiment: Experiment, parts: Sequence[Removal]) -> Uniqueness:
    """Try other targets and merges of what matters directly."""
    test, circuit = experiment.test, experiment.circuit
    paths = [one.path for one in parts if one.path is not None and one.needed == "directly"]
    ways = {}
    for path in (path for path in paths if isinstance(circuit.heads[path.head], OneHot)):
        for role in test.roles.in_layer(path.head.layer).before(path.source):
            if role not in (path.target, *_holding_the_same(experiment, path.target)):
                ways[path, role] = circuit.retargeted(path, role)
    targets: dict[AttentionPath, dict[str, DecidedLoss]] = {}
    for (path, role), one in test.costs(ways, circuit).items():
        targets.setdefault(path, {})[role] = one
    costs: dict[Head, float] = {}
    for part in parts:
        if part.path in paths:
            least = min(one.excess for one in part.losses.values())
            costs[part.head] = max(costs.get(part.head, 0.0), least)
    needed = sorted(sorted(costs, key=costs.__getitem__)[: current().merged_heads])
    tried = [*merged(circuit, needed, test.roles)]
    losses = test.costs({place: one for place, (*_, one) in enumerate(tried)}, circuit)
    best: dict[tuple[Head, Head], Merge] = {}
    for place, one in sorted(losses.items(), key=lambda item: item[1].loss.mean):
        giver, taker, _ = tried[place]
        best.setdefault((giver, taker), Merge(giver=giver, taker=taker, tested=one))
    return Uniqueness(targets=targets, merges=tuple(best.values()))


def _holding_the_same(experiment: Experiment, role: str) -> tuple[str, ...]:
    """Return the other roles that start with the same symbols as a role, by the task's layout."""
    if not isinstance(experiment.task, LaidOut):
        return ()
    layout = experiment.task.layout
    symbols = {name: pieces - layout.places for name, pieces in layout.start.items()}
    return tuple(name for name in symbols if name != role and symbols[name] == symbols.get(role))


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

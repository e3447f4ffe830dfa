"""Whole circuits changed step by step: brought below the threshold, made smaller, made better."""

from collections.abc import Iterable, Sequence

from circuits.changes import neighbours, oddity, without_one_path
from circuits.circuit import Circuit
from circuits.judge import IN_PASSING
from circuits.loss import SURE
from circuits.search import Search, State, side

WHOLE, SMALLEST = "as a whole", "smallest"  # orders in the log
ENOUGH_TO_COMPARE = 2048  # examples on which two circuits below the threshold are held against each other
ALTERNATIVE = "as good: below the threshold, with as many paths"
LOST = "heads above would lose their way"
NOT_LOWER = "the loss is not surely lower than without the change"


def repair(search: Search, state: State) -> State:
    """Change one mechanism at a time, or two, whatever it costs in paths, until the loss is below the threshold.

    The heads fixed first may not fit what the others became; where nothing lowers the loss any more it ends.
    """
    while state.judgement.side != "below":
        around = dict.fromkeys(neighbours(state.circuit, search.roles, search.noticed))
        tried = _passing_step_3(search, search.tried((state, circuit) for circuit in around))
        better = [s for s in tried if _surely_better(search, s, state)]
        best = min(better, key=lambda s: s.judgement.loss.mean, default=None)
        for other in tried:
            if other is not best:
                search.note(WHOLE, other, False, "another change brings more" if better else NOT_LOWER)
        if best is None:
            return state
        state = _taken(search, WHOLE, best, "it brings the loss nearest to the threshold")
    return state


def shrink(search: Search, state: State) -> State:
    """Take paths away until none can go, and none that tells heads above where to attend.

    A head that is worth something alone may be worth nothing beside the others, so step 3 does not hold a path back;
    of the ways to take one away those that it has nothing against come first.
    """
    return _shrunk(search, state, WHOLE)


def smallest(search: Search, state: State) -> State:
    """The same, with no regard for the heads above: what is left when every head's attention is prescribed."""
    return _shrunk(search, state, SMALLEST)


def _shrunk(search: Search, state: State, order: str) -> State:
    while True:
        ways = dict.fromkeys(without_one_path(state.circuit))
        smaller = _below(search, order, search.tried((state, circuit) for circuit in ways))
        breaking = search.failing_step_3(smaller)
        smaller.sort(key=lambda s: (s.size, s.circuit in breaking, oddity(s.circuit), s.judgement.loss.mean))
        best, rest = _first_that_keeps(search, order, state, smaller)
        for other in rest:
            search.note(order, other, False, "another path goes first")
        if best is None:
            return state
        state = _taken(search, order, best, "a path that is not needed was taken away")


def improve(search: Search, state: State) -> tuple[State, list[State]]:
    """Change one mechanism at a time, or two, while the loss falls for sure and no path is added.

    A lower loss leaves room to take more paths away.

    Returns:
        the best circuit, and the others of its size, with other paths, that are below the threshold too.
    """
    while True:
        around = dict.fromkeys(neighbours(state.circuit, search.roles, search.noticed))
        better, others = _lower(search, state, [circuit for circuit in around if len(circuit.paths) == state.size])
        best, rest = _first_that_keeps(search, WHOLE, state, better)
        if best is None:
            return state, _alternatives(search, state, others)
        for other in [*rest, *others]:
            search.note(WHOLE, other, False, "another change comes first" if other in rest else NOT_LOWER)
        state = shrink(search, _taken(search, WHOLE, best, "the loss is lower by three standard errors"))


def _lower(search: Search, state: State, circuits: Iterable[Circuit]) -> tuple[list[State], list[State]]:
    """Of all that stay below the threshold and pass step 3 those with a surely lower loss, best first, and the rest."""
    tried = _below(search, WHOLE, search.tried((state, circuit) for circuit in circuits))
    tried = _passing_step_3(search, tried)
    promising = [s for s in tried if search.judge.difference(s.circuit, state.circuit).mean < 0]
    contenders = _measured_contenders(search, state, promising)
    lower = search.settled(s for s in promising if _surely_better(search, s, state))
    changed = {s.circuit for s in lower}
    # The others are surely worse than the best: of fewer examples, which may be kinder ones.
    lower.sort(key=lambda s: (s.circuit not in contenders, s.key))
    return lower, [s for s in tried if s.circuit not in changed]


def _measured_contenders(search: Search, state: State, promising: Sequence[State]) -> set[Circuit]:
    """Measure on more examples, and those that may then still be the best, which are returned, on even more."""
    losses = search.judge.measure((s.circuit for s in (state, *promising)), IN_PASSING)[1:]
    if not losses:
        return set()
    best = promising[min(range(len(losses)), key=lambda place: losses[place].mean)]
    contenders = {s.circuit for s in promising if not _surely_better(search, best, s)}
    search.judge.measure((state.circuit, *sorted(contenders, key=str)), ENOUGH_TO_COMPARE)
    return contenders


def _alternatives(search: Search, state: State, tried: Sequence[State]) -> list[State]:
    """Those that could stand in the circuit's place: other paths, as many, and nothing lost that it explains."""
    found = []
    for one in tried:
        if one.circuit.paths == state.circuit.paths:
            search.note(WHOLE, one, False, NOT_LOWER)
    for one in search.settled(s for s in tried if s.circuit.paths != state.circuit.paths):
        keeps = one.judgement.side == "below" and _keeps(search, state, one)
        reason = ALTERNATIVE if keeps else LOST if one.judgement.side == "below" else side(one)
        search.note(WHOLE, one, False, reason)
        if keeps:
            found.append(one)
    return sorted(found, key=lambda s: s.key)


def _passing_step_3(search: Search, tried: Sequence[State]) -> list[State]:
    """Those that pass step 3; the others go into the log."""
    failing = search.failing_step_3(tried)
    for state in tried:
        if state.circuit in failing:
            search.note(WHOLE, state, False, "alone the loss is not surely low, which a simpler mechanism leaves low")
    return [state for state in tried if state.circuit not in failing]


def _below(search: Search, order: str, tried: Iterable[State]) -> list[State]:
    """Those below the threshold; the others go into the log."""
    below = []
    for state in tried:
        if state.judgement.side == "below":
            below.append(state)
        else:
            search.note(order, state, False, side(state))
    return below


def _surely_better(search: Search, one: State, other: State) -> bool:
    difference = search.judge.difference(one.circuit, other.circuit)
    return difference.mean < -SURE * difference.standard_error


def _first_that_keeps(
    search: Search, order: str, state: State, changed: Sequence[State]
) -> tuple[State | None, list[State]]:
    """The first that loses none of what the circuit explains, and those after it; those before it go into the log."""
    for place, one in enumerate(changed):
        (settled,) = search.settled([one])
        below = settled.judgement.side == "below"
        if below and (order == SMALLEST or _keeps(search, state, settled)):
            return settled, [*changed[place + 1 :]]
        search.note(order, settled, False, LOST if below else side(settled))
    return None, []


def _keeps(search: Search, state: State, changed: State) -> bool:
    """Whether a changed circuit explains every layer that it explained before the change.

    Below the change nothing is different; just above it most heads are left free to go astray, so that is asked
    first.
    """
    lowest = min(head.layer for head in changed.circuit.difference(state.circuit))
    layers = sorted(layer for layer in search.explained(state.circuit) if layer >= lowest)
    return all(search.explained(changed.circuit, asked) == {*asked} for asked in (layers[:1], layers[1:]))


def _taken(search: Search, order: str, state: State, reason: str) -> State:
    """The state that the search goes on with, and why; in the log too."""
    search.note(order, state, True, reason)
    return state.with_last(reason=reason)

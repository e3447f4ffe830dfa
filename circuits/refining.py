"""Whole circuits changed step by step: brought below the threshold, made smaller, made better."""

from collections.abc import Iterable

from circuits.changes import moves, neighbours, oddity, redirections, without_one_path
from circuits.circuit import Circuit
from circuits.loss import SURE
from circuits.search import Search, State, side

ORDER = "as a whole"


def repair(search: Search, state: State) -> State:
    """Change one mechanism at a time, or two, whatever it costs in paths, until the loss is below the threshold.

    The heads fixed first may not fit what the others became; where nothing lowers the loss any more it ends.
    """
    while state.judgement.side != "below":
        tried = _tried(search, state, neighbours(state.circuit, search.roles, search.noticed))
        better = [s for s in tried if _surely_better(search, s, state)]
        best = min(better, key=lambda s: s.judgement.loss.mean, default=None)
        left = "another change brings more" if better else "the loss is not surely lower than without the change"
        _note_choice(search, tried, best, "it brings the loss nearest to the threshold", left)
        if best is None:
            return state
        state = best
    return state


def shrink(search: Search, state: State) -> State:
    """Take paths away until none can go.

    A head that is worth something alone may be worth nothing beside the others, so step 3 does not hold a path back;
    of the ways to take one away those that it has nothing against come first.
    """
    while True:
        smaller = _below(search, search.tried((state, c) for c in dict.fromkeys(without_one_path(state.circuit))))
        breaking = search.breaking_alone((state, s.circuit) for s in smaller)
        smaller.sort(key=lambda s: (s.size, s.circuit in breaking, oddity(s.circuit), s.judgement.loss.mean))
        best = _first_that_keeps(search, state, smaller)
        _note_choice(search, smaller, best, "a path that is not needed was taken away", "another path goes first")
        if best is None:
            return state
        state = best


def improve(search: Search, state: State) -> tuple[State, list[State]]:
    """Lead one path at a time elsewhere while the loss falls for sure.

    Returns:
        the best circuit, and the others of its size, with other paths, that are below the threshold too.
    """
    while True:
        as_large = _below(search, _tried(search, state, redirections(state.circuit, search.roles)))
        better = sorted((s for s in as_large if _surely_better(search, s, state)), key=lambda s: s.key)
        best = _first_that_keeps(search, state, better)
        if best is None:
            _note_choice(search, as_large, None, "", "the loss is not surely lower than without the change")
            as_large += _moved(search, state)
            others = [s for s in as_large if s.circuit.paths != state.circuit.paths and s.size == state.size]
            return state, sorted((s for s in others if _keeps(search, state, s)), key=lambda s: s.key)
        _note_choice(search, as_large, best, "the loss is lower by three standard errors", "another change comes first")
        state = shrink(search, best)


def _tried(search: Search, state: State, circuits: Iterable[Circuit]) -> list[State]:
    return search.tried(search.fitting((state, circuit) for circuit in dict.fromkeys(circuits)))


def _below(search: Search, tried: Iterable[State]) -> list[State]:
    """Those below the threshold; the others go into the log."""
    below = []
    for state in tried:
        if state.judgement.side == "below":
            below.append(state)
        else:
            search.note(ORDER, state, False, side(state))
    return below


def _moved(search: Search, state: State) -> list[State]:
    """The circuits below the threshold in which one path stands in another head that attends along it too.

    So backups come out, of which a circuit names only one.
    """
    moved = _below(search, search.tried((state, circuit) for circuit in moves(state.circuit, search.noticed)))
    for one in moved:
        search.note(ORDER, one, False, "a path may as well stand here")
    return moved


def _surely_better(search: Search, one: State, other: State) -> bool:
    difference = search.judge.difference(one.circuit, other.circuit)
    return difference.mean < -SURE * difference.standard_error


def _first_that_keeps(search: Search, state: State, changed: list[State]) -> State | None:
    """The first that loses none of what the circuit explains; those that do are logged and leave the list."""
    while changed:
        changed[:1] = search.settled(changed[:1])
        below = changed[0].judgement.side == "below"
        if below and _keeps(search, state, changed[0]):
            return changed[0]
        lost = changed.pop(0)
        search.note(ORDER, lost, False, "heads above would lose their way" if below else side(lost))
    return None


def _keeps(search: Search, state: State, changed: State) -> bool:
    """Whether a changed circuit explains every layer that it explained before the change.

    Below the change nothing is different; just above it most heads are left free to go astray, so that is asked
    first.
    """
    lowest = min(head.layer for head in changed.circuit.difference(state.circuit))
    layers = sorted(layer for layer in search.explained(state.circuit) if layer >= lowest)
    return all(search.explained(changed.circuit, asked) == {*asked} for asked in (layers[:1], layers[1:]))


def _note_choice(search: Search, tried: Iterable[State], best: State | None, taken: str, left: str) -> None:
    """Log all changes among which one was chosen, or none."""
    for state in tried:
        search.note(ORDER, state, state is best, taken if state is best else left)

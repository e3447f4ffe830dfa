"""Heads fixed one after the other, several circuits kept alive.

Fixing a head tries its candidates in order of simplicity, each *in combination* with what is already fixed. Greed would
spend all that the threshold allows on the first heads; so for every number of paths the best circuits are kept, and
a circuit with one path more survives as long as its loss is lower. Heads that back each other up come out by
themselves: whichever is fixed first may be made uniform, and then the other cannot.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from circuits.circuit import Circuit, Head
from circuits.hypotheses import strongest
from circuits.judge import IN_PASSING
from circuits.mechanisms import Mechanism
from circuits.one_hot import OneHot
from circuits.search import Search, State, side

PER_SIZE, KEPT = 2, 8  # circuits kept alive for each number of paths, and altogether


def from_below(search: Search, fixed: Callable[[], None]) -> tuple[list[State], list[Head]]:
    """Fix heads upwards, those above left free, as long as some circuit stays below the threshold.

    So the heads above still find by themselves where to attend: what only tells them that is found here.

    Returns:
        the circuits alive, and the heads left over.
    """
    states = [State(Circuit())]
    for place, head in enumerate(search.heads):
        alive = _fix(search, "from below", head, states)
        if not alive:
            return states, search.heads[place:]
        states = alive
        fixed()
    return states, []


def from_above(search: Search, states: list[State], heads: Sequence[Head], fixed: Callable[[], None]) -> list[State]:
    """Fix the heads left over downwards; where no candidate stays below the threshold the best are kept."""
    for head in reversed(heads):
        states = _fix(search, "from above", head, states, or_best=True)
        fixed()
    return states


def _fix(search: Search, order: str, head: Head, states: Sequence[State], or_best: bool = False) -> list[State]:
    """Every state with every candidate for one head; the best of them survive."""
    tried = _extended(search, states, head, search.candidates[head])
    if len(strongest(search.noticed[head])) > 1:
        for state in states:
            own = [t for t in tried if t.history[:-1] == state.history and isinstance(t.circuit.heads[head], OneHot)]
            if own:
                tried += _with_fewer_rows(search, state, head, min(own, key=lambda t: t.judgement.loss.mean))
    tried = list({t.circuit: t for t in tried}.values())
    survivors = survivors_of(t for t in tried if t.judgement.side == "below")
    none_below = or_best and not survivors
    if none_below:
        survivors = sorted(tried, key=lambda t: t.judgement.loss.mean)[:PER_SIZE]
    for t in tried:
        taken = t in survivors
        search.note(order, t, taken, "others come nearer" if none_below and not taken else _reason(t, taken))
    return [t.with_last(reason=_reason(t, True)) for t in survivors]


def _extended(search: Search, states: Sequence[State], head: Head, candidates: Sequence[Mechanism]) -> list[State]:
    fitting = search.fitting(head, candidates)
    return search.tried(((s, s.circuit.with_head(head, c)) for s in states for c in fitting), IN_PASSING)


def _with_fewer_rows(search: Search, state: State, head: Head, full: State) -> list[State]:
    """The one-hot head with fewer and fewer rows: always the row whose loss is missed least goes."""
    found: list[State] = []
    now = full
    while True:
        one_hot = now.circuit.heads[head]
        if not isinstance(one_hot, OneHot) or len(one_hot.rows) == 1:
            return found
        tried = _extended(search, [state], head, [one_hot.without_row(source) for source, _ in one_hot.rows])
        if not tried:
            return found
        found += tried
        best = min(tried, key=lambda t: t.judgement.loss.mean)
        if now.judgement.side == "below" and best.judgement.side != "below":
            return found
        now = best


def survivors_of(states: Iterable[State]) -> list[State]:
    """For every number of paths the best circuits, as long as more paths mean a lower loss."""
    kept: list[State] = []
    lowest = float("inf")
    for _, group in groupby(sorted(states, key=lambda s: s.key), key=lambda s: s.size):
        best = [s for s in group if s.judgement.loss.mean < lowest][:PER_SIZE]
        kept += best
        lowest = min([lowest, *(s.judgement.loss.mean for s in best)])
    # Both ends are worth keeping: the smallest, and those that leave the most room for the heads to come.
    return kept if len(kept) <= KEPT else [*kept[: KEPT // 2], *kept[-KEPT // 2 :]]


def _reason(state: State, taken: bool) -> str:
    below = state.judgement.side == "below"
    if taken:
        return "among the best of its size" if below else "none is below the threshold for sure; this comes nearest"
    return "the survivors have fewer paths, or as many and a lower loss" if below else side(state)

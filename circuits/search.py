"""The search for a circuit: heads fixed one after the other, several circuits kept alive, judged as wholes.

Fixing a head tries its candidates in order of simplicity, each *in combination* with what is already fixed. Greed would
spend all that the threshold allows on the first heads; so for every number of paths the best circuits are kept, and
a circuit with one path more survives as long as its loss is lower. Heads that back each other up come out by
themselves: whichever is fixed first may be made uniform, and then the other cannot.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from jaxtyping import Float
from torch import Tensor

from circuits.changes import moves, neighbours, oddity, redirections, without_one_path
from circuits.circuit import Circuit, Head
from circuits.hypotheses import candidates, noticeable_paths, strongest
from circuits.judge import IN_PASSING, Judge, Judgement
from circuits.loss import SURE
from circuits.mechanisms import Mechanism, OneHot

PER_SIZE, KEPT = 2, 8  # circuits kept alive for each number of paths, and altogether


@dataclass(frozen=True)
class Trial:
    """One candidate for one head, tested in combination with what was fixed before.

    Attributes:
        order: ``alone`` for a head that was replaced without any other, ``from below``, ``from above``, or ``as a
            whole`` for changes of a finished circuit.
        head: the head.
        candidate: its mechanism.
        given: the number of paths fixed before.
        judgement: the loss of the combination.
        taken: whether it was kept.
        reason: why, or why not.
    """

    order: str
    head: Head
    candidate: str
    given: int
    judgement: Judgement
    taken: bool
    reason: str


@dataclass(frozen=True)
class State:
    """A circuit on its way, with its judgement after every head that was fixed."""

    circuit: Circuit
    history: tuple[tuple[Head, Judgement], ...] = ()

    @property
    def judgement(self) -> Judgement:
        """Of the circuit as it stands."""
        return self.history[-1][1]

    @property
    def size(self) -> int:
        """Number of paths."""
        return len(self.circuit.paths)

    @property
    def key(self) -> tuple[int, float]:
        """Smaller is better: size first, then loss."""
        return self.size, self.judgement.loss.mean


class Search:
    """One search over one model; ``trials`` is its log."""

    def __init__(self, judge: Judge, attention: Float[Tensor, "layer head query_role key_role"]) -> None:
        """``attention`` is the average from role to role, from which the hypotheses are read."""
        self.judge = judge
        self.roles = judge.examples.roles
        cfg = judge.model.cfg
        self.heads = [Head(layer, index) for layer in range(cfg.n_layers) for index in range(cfg.n_heads)]
        self.n_layers = cfg.n_layers
        self.noticed = {head: noticeable_paths(attention, self.roles, head) for head in self.heads}
        self.candidates = {head: candidates(strongest(self.noticed[head])) for head in self.heads}
        self.replaceable = self._replaceable()
        self.trials: list[Trial] = []
        self._refused: set[tuple[Head, Mechanism]] = set()

    def from_below(self, fixed: Callable[[], None]) -> tuple[list[State], list[Head]]:
        """Fix heads upwards, those above left free, as long as some circuit stays below the threshold.

        So the heads above still find by themselves where to attend: what only tells them that is found here.

        Returns:
            the circuits alive, and the heads left over.
        """
        states = [State(Circuit())]
        for place, head in enumerate(self.heads):
            alive = self._fix("from below", head, states)
            if not alive:
                return states, self.heads[place:]
            states = alive
            fixed()
        return states, []

    def from_above(self, states: list[State], heads: Sequence[Head], fixed: Callable[[], None]) -> list[State]:
        """Fix the heads left over downwards; where no candidate stays below the threshold the best are kept."""
        for head in reversed(heads):
            states = self._fix("from above", head, states, or_best=True)
            fixed()
        return states

    def settled(self, states: Sequence[State]) -> list[State]:
        """The same circuits, judged on as many examples as it takes to decide, and on no fewer than in passing."""
        judged = self.judge((state.circuit for state in states), least=IN_PASSING)
        return [State(s.circuit, (*s.history[:-1], (s.history[-1][0], j))) for s, j in zip(states, judged, strict=True)]

    def explained(self, circuit: Circuit, layers: Iterable[int] | None = None) -> frozenset[int]:
        """The layers (of some, or of all) up to which the circuit does, with all heads above left free."""
        asked = list(range(self.n_layers) if layers is None else layers)
        judged = self.judge((circuit.up_to(layer) for layer in asked), IN_PASSING)
        return frozenset(layer for layer, judgement in zip(asked, judged, strict=True) if judgement.side == "below")

    def allowed(self, head: Head, candidates: Sequence[Mechanism]) -> list[bool]:
        """Whether each candidate would do for this head alone; all are allowed where none would (step 3)."""
        if head not in self.replaceable:
            return [True] * len(candidates)
        judged = self.judge((Circuit({head: candidate}) for candidate in candidates), IN_PASSING)
        return [judgement.side == "below" for judgement in judged]

    def _replaceable(self) -> set[Head]:
        """The heads that some mechanism can stand in for, alone (step 3); asked together, since they share much."""
        alone = [Circuit({head: mechanism}) for head in self.heads for mechanism in self.candidates[head]]
        judged = self.judge(alone, IN_PASSING)
        return {head for c, j in zip(alone, judged, strict=True) if j.side == "below" for head in c.heads}

    def _fix(self, order: str, head: Head, states: Sequence[State], or_best: bool = False) -> list[State]:
        """Every state with every candidate for one head; the best of them survive."""
        tried = self._extend(states, head, self.candidates[head])
        if len(strongest(self.noticed[head])) > 1:
            for state in states:
                own = [
                    t for t in tried if t.history[:-1] == state.history and isinstance(t.circuit.heads[head], OneHot)
                ]
                if own:
                    tried += self._thinned(state, head, min(own, key=lambda t: t.judgement.loss.mean))
        tried = list({t.circuit: t for t in tried}.values())
        survivors = survivors_of(t for t in tried if t.judgement.side == "below")
        none_below = or_best and not survivors
        if none_below:
            survivors = sorted(tried, key=lambda t: t.judgement.loss.mean)[:PER_SIZE]
        for t in tried:
            taken = t in survivors
            self._note(order, head, t, taken, "others come nearer" if none_below and not taken else _reason(t, taken))
        return survivors

    def _extend(self, states: Sequence[State], head: Head, candidates: Sequence[Mechanism]) -> list[State]:
        allowed = self.allowed(head, candidates)
        kept = [candidate for candidate, fits in zip(candidates, allowed, strict=True) if fits]
        for candidate, fits in zip(candidates, allowed, strict=True):
            if not fits and (head, candidate) not in self._refused:
                self._refused.add((head, candidate))
                (alone,) = self.judge([Circuit({head: candidate})], IN_PASSING)
                reason = "alone it breaks what another mechanism leaves whole"
                self.trials.append(Trial("alone", head, str(candidate), 0, alone, False, reason))
        pairs = [(state, state.circuit.with_head(head, candidate)) for state in states for candidate in kept]
        judged = self.judge((circuit for _, circuit in pairs), IN_PASSING)
        return [State(c, (*s.history, (head, j))) for (s, c), j in zip(pairs, judged, strict=True)]

    def _thinned(self, state: State, head: Head, full: State) -> list[State]:
        """The one-hot head with fewer and fewer rows: always the row whose loss is missed least goes."""
        found: list[State] = []
        now = full
        while True:
            one_hot = now.circuit.heads[head]
            if not isinstance(one_hot, OneHot) or len(one_hot.rows) == 1:
                return found
            fewer = [one_hot.without_row(source) for source, _ in one_hot.rows]
            tried = self._extend([state], head, fewer)
            if not tried:
                return found
            found += tried
            best = min(tried, key=lambda t: t.judgement.loss.mean)
            if now.judgement.side == "below" and best.judgement.side != "below":
                return found
            now = best

    def shrink(self, state: State) -> State:
        """Take paths away from a finished circuit until none can go."""
        while True:
            smaller = self._changed(state, without_one_path(state.circuit))
            smaller.sort(key=lambda s: (s.size, oddity(s.circuit), s.judgement.loss.mean))
            best = self._first_that_keeps(state, smaller)
            self._note_choice(smaller, best, "a path that is not needed was taken away", "another path goes first")
            if best is None:
                return state
            state = best

    def improve(self, state: State) -> tuple[State, list[State]]:
        """Lead one path at a time elsewhere while the loss falls for sure.

        Returns:
            the best circuit, and the others of its size, with other paths, that are below the threshold too.
        """
        while True:
            as_large = self._changed(state, redirections(state.circuit, self.roles))
            better = sorted((s for s in as_large if self._surely_better(s, state)), key=lambda s: s.key)
            best = self._first_that_keeps(state, better)
            if best is None:
                self._note_choice(as_large, None, "", "the loss is not surely lower than without the change")
                as_large += self._moved(state)
                others = [s for s in as_large if s.circuit.paths != state.circuit.paths and s.size == state.size]
                return state, sorted((s for s in others if self._keeps(state, s)), key=lambda s: s.key)
            self._note_choice(
                as_large, best, "the loss is lower by three standard errors", "another change comes first"
            )
            state = self.shrink(best)

    def repair(self, state: State) -> State:
        """Change one mechanism at a time, whatever it costs in paths, until the loss is below the threshold.

        The heads fixed first may not fit what the others became; where nothing lowers the loss any more it ends.
        """
        while state.judgement.side != "below":
            tried = self._extend_whole(state, neighbours(state.circuit, self.roles, self.noticed))
            better = [s for s in tried if self._surely_better(s, state)]
            state = min(better, key=lambda s: s.judgement.loss.mean) if better else state
            self._note_choice(tried, state, "it brings the loss nearest to the threshold", "another change brings more")
            if not better:
                return state
        return state

    def _surely_better(self, one: State, other: State) -> bool:
        difference = self.judge.difference(one.circuit, other.circuit)
        return difference.mean < -SURE * difference.standard_error

    def _changed(self, state: State, changes: Iterable[tuple[Head, Mechanism]]) -> list[State]:
        """The changed circuits that are below the threshold."""
        tried = self._extend_whole(state, changes)
        for changed in tried:
            if changed.judgement.side != "below":
                self._note("as a whole", changed.history[-1][0], changed, False, _reason(changed, False))
        return [changed for changed in tried if changed.judgement.side == "below"]

    def _moved(self, state: State) -> list[State]:
        """The circuits below the threshold in which one path stands in another head that attends along it too.

        So backups come out, of which a circuit names only one.
        """
        pairs = list(moves(state.circuit, self.noticed))
        judged = self.judge(circuit for _, circuit in pairs)
        tried = [State(c, (*state.history, (head, j))) for (head, c), j in zip(pairs, judged, strict=True)]
        for moved in tried:
            below = moved.judgement.side == "below"
            reason = "a path may as well stand here" if below else _reason(moved, False)
            self._note("as a whole", moved.history[-1][0], moved, False, reason)
        return [moved for moved in tried if moved.judgement.side == "below"]

    def _first_that_keeps(self, state: State, changed: list[State]) -> State | None:
        """The first that loses none of what the circuit explains; those that do are logged and leave the list."""
        while changed:
            changed[:1] = self.settled(changed[:1])
            below = changed[0].judgement.side == "below"
            if below and self._keeps(state, changed[0]):
                return changed[0]
            lost = changed.pop(0)
            reason = "heads above would lose their way" if below else _reason(lost, False)
            self._note("as a whole", lost.history[-1][0], lost, False, reason)
        return None

    def _keeps(self, state: State, changed: State) -> bool:
        """Whether a changed circuit explains every layer that it explained before the change.

        Below the change nothing is different; just above it most heads are left free to go astray, so that is asked
        first.
        """
        lowest = min(head.layer for head in changed.circuit.difference(state.circuit))
        layers = sorted(layer for layer in self.explained(state.circuit) if layer >= lowest)
        return all(self.explained(changed.circuit, asked) == {*asked} for asked in (layers[:1], layers[1:]))

    def _extend_whole(self, state: State, changes: Iterable[tuple[Head, Mechanism]]) -> list[State]:
        by_head: dict[Head, dict[Mechanism, None]] = {}
        for head, mechanism in changes:
            by_head.setdefault(head, {})[mechanism] = None
        kept = []
        for head, mechanisms in by_head.items():
            allowed = self.allowed(head, list(mechanisms))
            kept += [(head, state.circuit.with_head(head, m)) for m, ok in zip(mechanisms, allowed, strict=True) if ok]
        judged = self.judge(circuit for _, circuit in kept)
        return [State(c, (*state.history, (head, j))) for (head, c), j in zip(kept, judged, strict=True)]

    def _note_choice(self, tried: Iterable[State], best: State | None, taken: str, left: str) -> None:
        """Log all changes of a whole circuit among which one was chosen, or none."""
        for state in tried:
            chosen = state is best
            self._note("as a whole", state.history[-1][0], state, chosen, taken if chosen else left)

    def _note(self, order: str, head: Head, state: State, taken: bool, reason: str) -> None:
        given = len(state.circuit.without_heads([head]).paths)
        candidate = str(state.circuit.heads[head])
        self.trials.append(Trial(order, head, candidate, given, state.judgement, taken, reason))


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
    if taken and state.judgement.side == "below":
        return "among the best of its size"
    if taken:
        return "no candidate stays below the threshold; this comes nearest"
    if state.judgement.side == "below":
        return "the survivors have fewer paths, or as many and a lower loss"
    return "the loss is above the threshold" if state.judgement.side == "above" else "too near to the threshold"

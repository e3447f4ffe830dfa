"""What every part of a search stands on: hypotheses, a judge, and a log of all that was tried.

``fixing.py`` prescribes one head after the other, ``refining.py`` changes whole circuits, ``discovery.py`` leads them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit, Head
from circuits.hypotheses import candidates, noticeable_paths, strongest
from circuits.judge import IN_PASSING, Judge, Judgement
from circuits.mechanisms import SIMPLE, Mechanism


@dataclass(frozen=True)
class Trial:
    """A candidate for one head, or for two at once, tested in combination with what was fixed before.

    Attributes:
        order: ``alone`` for a head that was replaced without any other, ``from below``, ``from above``, ``as a
            whole`` for changes of a finished circuit, or ``smallest`` where heads above may lose their way.
        change: the heads with their mechanisms.
        given: the number of paths fixed before.
        judgement: the loss of the combination.
        taken: whether it was kept.
        reason: why, or why not.
    """

    order: str
    change: Mapping[Head, Mechanism]
    given: int
    judgement: Judgement
    taken: bool
    reason: str


@dataclass(frozen=True)
class Step:
    """Heads that were fixed or changed together.

    Attributes:
        change: the heads with their mechanisms.
        judgement: the circuit's loss after that.
        reason: why it was done.
    """

    change: Mapping[Head, Mechanism]
    judgement: Judgement
    reason: str = ""


@dataclass(frozen=True)
class State:
    """A circuit on its way, with every step that led to it."""

    circuit: Circuit
    history: tuple[Step, ...] = ()

    @property
    def judgement(self) -> Judgement:
        """Of the circuit as it stands."""
        return self.history[-1].judgement

    @property
    def changed(self) -> Mapping[Head, Mechanism]:
        """What the last step made of its heads."""
        return self.history[-1].change

    @property
    def size(self) -> int:
        """Number of paths."""
        return len(self.circuit.paths)

    @property
    def key(self) -> tuple[int, float]:
        """Smaller is better: size first, then loss."""
        return self.size, self.judgement.loss.mean

    def then(self, circuit: Circuit, judgement: Judgement) -> "State":
        """The state after one step more."""
        change = {head: circuit.heads[head] for head in circuit.difference(self.circuit)}
        return State(circuit, (*self.history, Step(change, judgement)))

    def with_last(self, **changes: Any) -> "State":
        """The same state with something else said of its last step: another ``judgement``, or a ``reason``."""
        return State(self.circuit, (*self.history[:-1], replace(self.history[-1], **changes)))


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
        self.trials: list[Trial] = []
        self._refused: set[tuple[Head, Mechanism]] = set()
        self._replaced = self._replaced_alone()

    def _replaced_alone(self) -> dict[Head, list[Mechanism]]:
        """For every head what can stand in for it, alone (step 3); asked together, since they share much."""
        alone = [Circuit({head: mechanism}) for head in self.heads for mechanism in self.candidates[head]]
        judged = self.judge(alone, IN_PASSING)
        found: dict[Head, list[Mechanism]] = {head: [] for head in self.heads}
        for circuit, judgement in zip(alone, judged, strict=True):
            for head, mechanism in circuit.heads.items():
                found[head] += [mechanism] if judgement.side == "below" else []
        return found

    def tried(self, pairs: Iterable[tuple[State, Circuit]], most: int | None = None) -> list[State]:
        """Every state with the circuit that it is to become, judged on at most so many examples."""
        wanted = list(pairs)
        judged = self.judge((circuit for _, circuit in wanted), most)
        return [state.then(circuit, j) for (state, circuit), j in zip(wanted, judged, strict=True)]

    def fitting(self, head: Head, candidates: Sequence[Mechanism]) -> list[Mechanism]:
        """The candidates that surely leave the loss low alone; all of them where none does.

        What is refused stands in the log, once.
        """
        breaking = self._breaking({(head, candidate) for candidate in candidates}) if self._replaced[head] else {}
        for (_, candidate), judgement in breaking.items():
            if (head, candidate) not in self._refused:
                self._refused.add((head, candidate))
                reason = f"alone {_not_surely_low(judgement)}, which another mechanism leaves low"
                self.trials.append(Trial("alone", {head: candidate}, 0, judgement, False, reason))
        return [candidate for candidate in candidates if (head, candidate) not in breaking] or list(candidates)

    def failing_step_3(self, states: Iterable[State]) -> set[Circuit]:
        """The circuits whose last step fails step 3: alone it lifts the loss, and a simple mechanism does not."""
        wanted = list(states)
        simple = {head for head, found in self._replaced.items() if any(m.name in SIMPLE for m in found)}
        asked = {change for state in wanted for change in state.changed.items() if change[0] in simple}
        breaking = self._breaking(asked)
        return {s.circuit for s in wanted if any(change in breaking for change in s.changed.items())}

    def _breaking(self, changes: Iterable[tuple[Head, Mechanism]]) -> dict[tuple[Head, Mechanism], Judgement]:
        """Those that do not surely leave the loss below the threshold alone."""
        asked = sorted(changes, key=str)
        judged = self.judge((Circuit(dict([change])) for change in asked), IN_PASSING)
        return {change: j for change, j in zip(asked, judged, strict=True) if j.side != "below"}

    def settled(self, states: Iterable[State]) -> list[State]:
        """The same circuits, judged on as many examples as it takes to decide, and on no fewer than in passing."""
        wanted = list(states)
        self.judge.measure((state.circuit for state in wanted), IN_PASSING)
        judged = self.judge(state.circuit for state in wanted)
        return [state.with_last(judgement=judgement) for state, judgement in zip(wanted, judged, strict=True)]

    def explained(self, circuit: Circuit, layers: Iterable[int] | None = None) -> frozenset[int]:
        """The layers (of some, or of all) up to which the circuit does, with all heads above left free."""
        asked = list(range(self.n_layers) if layers is None else layers)
        judged = self.judge(circuit.up_to(layer) for layer in asked)
        return frozenset(layer for layer, judgement in zip(asked, judged, strict=True) if judgement.side == "below")

    def note(self, order: str, state: State, taken: bool, reason: str) -> None:
        """Log the last step of a state."""
        given = len(state.circuit.without_heads(state.changed).paths)
        self.trials.append(Trial(order, state.changed, given, state.judgement, taken, reason))


def side(state: State) -> str:
    """Why a circuit that is not below the threshold was not taken."""
    return _not_surely_low(state.judgement)


def _not_surely_low(judgement: Judgement) -> str:
    return "the loss is above the threshold" if judgement.side == "above" else "the loss is too near to the threshold"

"""Fit a circuit by one change at a time, with all heads replaced.

    grow        give heads paths until the loss is low enough
    prune       remove redundant paths
    simplify    give every head the simplest mechanism that the loss allows (paper, Appendix E, step 3)

The log has every change that was tried, with its loss.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from circuits.circuit import Circuit, Head
from circuits.discovery.observed_paths import ObservedPaths
from circuits.losses.loss import SURE
from circuits.losses.sequential_test import ENOUGH, IN_PASSING, DecidedLoss, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, REPLACEMENTS, SIMPLE, Mechanism
from circuits.mechanisms.one_hot import OneHot

Change = tuple[Head, Mechanism]  # a head, and its new mechanism


@dataclass(frozen=True)
class Trial:
    """A change that was tried.

    Attributes:
        step: ``grow``, ``prune``, ``simplify`` or ``steer``.
        head: the changed head.
        mechanism: the head's new mechanism.
        tested: the loss with all heads replaced, and the decision on it.
        taken: whether the change was kept.
    """

    step: str
    head: Head
    mechanism: Mechanism
    tested: DecidedLoss
    taken: bool

    def __str__(self) -> str:
        return f"{self.step} {self.head}: {self.mechanism}. Loss {self.tested.loss}."


class Fitting:
    """Changes circuits of one model; ``trials`` is the log.

    The loss must be low enough with all heads replaced. It must also be low enough with the content heads above any
    layer intact, from the layer of the change on. The second condition keeps the paths that these heads need to find
    out where to look.
    """

    def __init__(self, test: SequentialTest, intact: Mapping[int, SequentialTest], observed: ObservedPaths) -> None:
        """Make a fitting.

        Args:
            test: the test with all heads replaced.
            intact: for some layers, the test with the content heads above intact.
            observed: the paths that the heads' attention shows.
        """
        self.test, self.intact, self.observed = test, intact, observed
        self.trials: list[Trial] = []

    def grow(self, circuit: Circuit) -> Circuit:
        """Apply the change that lowers the loss most, mostly new paths for a head, and repeat.

        It ends when the loss is low enough, or no change lowers it by more than three standard errors.
        """
        (loss,) = self.test.measure([circuit], ENOUGH)
        while loss.mean >= self.test.threshold:
            changes = [change for head in circuit.heads for change in self._others(head, circuit.heads[head])]
            changed = [circuit.with_head(*change) for change in changes]
            losses = self.test.measure(changed, ENOUGH)
            best = min(range(len(losses)), key=lambda place: losses[place].mean, default=None)
            if best is not None:
                gain = self.test.difference(changed[best], circuit)
                best = best if gain.mean < -SURE * gain.standard_error else None
            self._note("grow", changes, changed, best)
            if best is None:
                return circuit
            circuit, loss = changed[best], losses[best]
        return circuit

    def prune(self, circuit: Circuit, looking: Sequence[Head]) -> Circuit:
        """Remove paths, the least costly first, as long as the losses stay low enough.

        ``looking`` are the content heads.
        """
        while True:
            fewer = self._pruned(circuit, [*self._fewer(circuit, looking)], looking)
            fewer = fewer or self._pruned(circuit, [*_emptied(circuit)], looking)
            if fewer is None:
                return circuit
            circuit = fewer

    def _pruned(self, circuit: Circuit, changes: Sequence[Change], looking: Sequence[Head]) -> Circuit | None:
        """Apply the change with the lowest loss that keeps all losses low enough; return None if there is none."""
        changed = [circuit.with_head(*change) for change in changes]
        low = self._low(changed)
        lowest_first = sorted(low, key=lambda place: low[place].loss.mean)
        best = next((place for place in lowest_first if self._guides(changes[place][0], changed[place], looking)), None)
        self._note("prune", changes, changed, best)
        return None if best is None else changed[best]

    def simplify(
        self, circuit: Circuit, looking: Sequence[Head], progress: Callable[[float], None] = lambda share: None
    ) -> Circuit:
        """Give every head, from the last to the first, its simplest mechanism that keeps the losses low enough."""
        for done, head in enumerate(reversed([*circuit.heads]), start=1):
            changes = [(head, simpler) for simpler in dict.fromkeys(self._simpler(head, circuit.heads[head]))]
            changed = [circuit.with_head(*change) for change in changes]
            low = self._low(changed)
            simplest_first = (
                place for place in low if not changes[place][1].paths or self._missed(head, circuit, looking)
            )
            best = next((place for place in simplest_first if self._guides(head, changed[place], looking)), None)
            self._note("simplify", changes, changed, best)
            circuit = circuit if best is None else changed[best]
            progress(done / len(circuit.heads))
        return circuit

    def _fewer(self, circuit: Circuit, looking: Sequence[Head]) -> Iterator[Change]:
        """Yield every head with one path less; a content head without any path gets its average."""
        for head, mechanism in circuit.heads.items():
            if isinstance(mechanism, OneHot):
                for ends in mechanism.rows:
                    kept = [row for row in mechanism.rows if row != ends]
                    shown = {*kept} <= {*self.observed.rows[head]}  # no row was made uniform or identity
                    if head in looking and shown and (isinstance(mechanism.elsewhere, FixedPattern) or not kept):
                        yield head, self.observed.mechanism(head, kept)
                    elif kept:
                        yield head, mechanism.without_row(*ends)

    def _others(self, head: Head, mechanism: Mechanism) -> Iterator[Change]:
        """Yield the other mechanisms of a head: all of its paths, or something simpler."""
        rows = self.observed.rows[head]
        if rows and isinstance(mechanism, FixedPattern):
            yield head, self.observed.mechanism(head, rows)
        others = dict.fromkeys(self._simpler(head, mechanism))
        yield from ((head, simpler) for simpler in others if simpler != mechanism)

    def _simpler(self, head: Head, mechanism: Mechanism) -> Iterator[Mechanism]:
        """Yield the mechanisms that could replace a head's own, simplest first.

        No path, fixed positions that roles attend to, paths, a map of all positions.
        """
        if isinstance(mechanism, FixedPattern):
            yield from SIMPLE.values()
            if places := self.observed.positions(head):
                yield from (OneHot(places, elsewhere) for elsewhere in ELSEWHERE)
        for shown in (mechanism, self.observed.mechanism(head, self.observed.rows[head])):
            if isinstance(shown, OneHot):
                yield from (OneHot(shown.rows, elsewhere, dict(shown.where)) for elsewhere in ELSEWHERE)
        if isinstance(mechanism, FixedPattern):
            yield mechanism.as_map

    def _missed(self, head: Head, circuit: Circuit, looking: Sequence[Head]) -> bool:
        """Whether the loss is more than twice the allowed loss when a head is made uniform or identity.

        It must be so by more than three standard errors. Otherwise the head gets no path.
        """
        for without in (circuit.with_head(head, SIMPLE[name]) for name in REPLACEMENTS):
            ways = {self.intact[layer]: intact_above(layer, without, looking) for layer in self._layers(head)}
            ways = {self.test: without, **ways}
            losses = {test: test.test_one(way, max_examples=IN_PASSING).loss for test, way in ways.items()}
            if not any(loss.mean - SURE * loss.standard_error > 2 * test.threshold for test, loss in losses.items()):
                return False
        return True

    def _low(self, changed: Sequence[Circuit]) -> dict[int, DecidedLoss]:
        """Return the decisions of the circuits with a loss that is clearly low enough, by their index."""
        decided = self.test.test(dict(enumerate(changed)), max_examples=IN_PASSING)
        return {place: own for place, own in decided.items() if own.decision == "below"}

    def _guides(self, head: Head, changed: Circuit, looking: Sequence[Head]) -> bool:
        """Whether after a change of this head no loss is clearly too high with the content heads above intact."""
        return all(
            self.intact[layer].test_one(intact_above(layer, changed, looking), max_examples=IN_PASSING).decision
            != "above"
            for layer in self._layers(head)
        )

    def _layers(self, head: Head) -> list[int]:
        """Return the layers of ``intact`` that a change of this head affects: all from the last one not above it."""
        return [layer for layer in self.intact if not any(layer < other <= head.layer for other in self.intact)]

    def _note(self, step: str, changes: Sequence[Change], changed: Sequence[Circuit], taken: int | None) -> None:
        decided = self.test.test(dict(enumerate(changed)), max_examples=0)
        self.trials += [Trial(step, *changes[place], own, place == taken) for place, own in decided.items()]


def _emptied(circuit: Circuit) -> Iterator[Change]:
    """Yield every one-hot head with the row of one path made uniform or identity, as in step 6."""
    for path in circuit.paths:
        if isinstance(circuit.heads[path.head], OneHot):
            yield from ((path.head, circuit.without(path, row).heads[path.head]) for row in REPLACEMENTS)


def intact_above(layer: int, circuit: Circuit, looking: Sequence[Head]) -> Circuit:
    """Return the circuit with those of the given content heads intact that lie above a layer."""
    return circuit.without_heads(head for head in content(circuit) if head in looking and head.layer > layer)


def content(circuit: Circuit) -> tuple[Head, ...]:
    """Return the one-hot heads."""
    return tuple(head for head, mechanism in circuit.heads.items() if isinstance(mechanism, OneHot))

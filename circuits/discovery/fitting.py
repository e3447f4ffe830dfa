"""Fit a circuit by one change at a time, with all heads replaced.

    grow        give heads paths until the loss is low enough
    prune       remove redundant paths
    simplify    give every head the simplest mechanism that the loss allows (paper, Appendix E, step 3)

The log has every change that was tried, with its loss.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from circuits.circuit import Circuit, Head
from circuits.discovery.observed_paths import ObservedPaths
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, REPLACEMENTS, SIMPLE, Mechanism
from circuits.mechanisms.one_hot import OneHot
from circuits.results import Result
from circuits.settings import current
from circuits.utils.progress import Progress

Change = tuple[Head, Mechanism]  # a head, and its new mechanism


class Trial(Result):
    """A change that was tried.

    Attributes:
        step: ``grow``, ``prune``, ``simplify`` or ``steer``.
        head: the changed head.
        mechanism: the head's new mechanism, in words.
        tested: the loss with all heads replaced, and the decision on it.
        taken: whether the change was kept.
    """

    step: str
    head: Head
    mechanism: str
    tested: DecidedLoss
    taken: bool

    def __str__(self) -> str:
        return f"{self.step} {self.head}: {self.mechanism}. Loss {self.tested.loss}."


@dataclass(frozen=True)
class Fitting:
    """Changes circuits of one model.

    The loss must be low enough with all heads replaced. It must also be low enough with the content heads above any
    layer intact, from the layer of the change on. The second condition keeps the paths that these heads need to find
    out where to look.

    Attributes:
        test: the test with all heads replaced.
        observed: the paths that the heads' attention shows.
        looking: the content heads.
        intact: for some layers, the test with the content heads above intact.
        trials: the log.
    """

    test: SequentialTest
    observed: ObservedPaths
    looking: Sequence[Head] = ()
    intact: Mapping[int, SequentialTest] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)

    def grow(self, circuit: Circuit) -> Circuit:
        """Apply the change that lowers the loss most, mostly new paths for a head, and repeat.

        It ends when the loss is low enough, or no change lowers it by more than three standard errors.
        """
        (loss,) = self.test.measure([circuit], current().enough)
        while loss.mean >= self.test.threshold:
            changes = [change for head in circuit.heads for change in self._others(head, circuit.heads[head])]
            changed = [circuit.with_head(*change) for change in changes]
            losses = self.test.measure(changed, current().enough)
            best = min(range(len(losses)), key=lambda place: losses[place].mean, default=None)
            if best is not None:
                gain = self.test.difference(changed[best], circuit)
                best = best if gain.mean < -current().sure * gain.standard_error else None
            self.note("grow", circuit, changes, best)
            if best is None:
                break
            circuit, loss = changed[best], losses[best]
        return circuit

    def prune(self, circuit: Circuit) -> Circuit:
        """Remove paths, the least costly first, as long as the losses stay low enough."""
        smaller: Circuit | None = circuit
        while smaller is not None:
            circuit = smaller
            smaller = self._changed("prune", circuit, [*self._fewer(circuit)])
            smaller = smaller or self._changed("prune", circuit, [*_emptied(circuit)])
        return circuit

    def simplify(self, circuit: Circuit, progress: Progress) -> Circuit:
        """Give every head, from the last to the first, its simplest mechanism that keeps the losses low enough."""
        for done, head in enumerate(reversed([*circuit.heads]), start=1):
            changes = [(head, simpler) for simpler in dict.fromkeys(self._simpler(head, circuit.heads[head]))]
            circuit = self._changed("simplify", circuit, changes) or circuit
            progress(done / len(circuit.heads))
        return circuit

    def _changed(self, step: str, circuit: Circuit, changes: Sequence[Change]) -> Circuit | None:
        """Apply the first change that keeps all losses low enough, in pruning the least costly; None if none does."""
        changed = [circuit.with_head(*change) for change in changes]
        decided = self.test.test(dict(enumerate(changed)), max_examples=current().in_passing)
        low: Iterable[int] = [place for place, tested in decided.items() if tested.decision == "below"]
        if step == "prune":
            low = sorted(low, key=lambda place: decided[place].loss.mean)
        else:  # a head gets no path that nobody would miss
            low = (place for place in low if not changes[place][1].paths or self._missed(changes[place][0], circuit))
        best = next((place for place in low if self._guides(changes[place][0], changed[place])), None)
        self.note(step, circuit, changes, best)
        return None if best is None else changed[best]

    def _fewer(self, circuit: Circuit) -> Iterator[Change]:
        """Yield every head with one path less; a content head without any path gets its average."""
        for head, mechanism in circuit.heads.items():
            if isinstance(mechanism, OneHot):
                for ends in mechanism.rows:
                    kept = [row for row in mechanism.rows if row != ends]
                    shown = {*kept} <= {*self.observed.rows[head]}  # no row was made uniform or identity
                    if head in self.looking and shown and (isinstance(mechanism.elsewhere, FixedPattern) or not kept):
                        yield head, self.observed.mechanism(head, kept)
                    elif kept:
                        yield head, mechanism.without_row(*ends)

    def _others(self, head: Head, mechanism: Mechanism) -> Iterator[Change]:
        """Yield the other mechanisms of a head: all of its paths, or something simpler."""
        rows = self.observed.rows[head]
        if rows and isinstance(mechanism, FixedPattern):
            yield head, self.observed.mechanism(head, rows)
        yield from ((head, other) for other in dict.fromkeys(self._simpler(head, mechanism)) if other != mechanism)

    def _simpler(self, head: Head, mechanism: Mechanism) -> Iterator[Mechanism]:
        """Yield the mechanisms that could replace that of a head, simplest first.

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

    def _missed(self, head: Head, circuit: Circuit) -> bool:
        """Whether the loss is much too high when a head is made uniform or identity."""
        for without in (circuit.with_head(head, row) for row in REPLACEMENTS):
            ways = {self.test: without, **self._intact_above(head, without)}
            losses = {test: test.test_one(way, max_examples=current().in_passing).loss for test, way in ways.items()}
            least = {test: loss.mean - current().sure * loss.standard_error for test, loss in losses.items()}
            if not any(loss > current().missed * test.threshold for test, loss in least.items()):
                return False
        return True

    def _guides(self, head: Head, changed: Circuit) -> bool:
        """Whether after a change of this head no loss is clearly too high with the content heads above intact."""
        ways = self._intact_above(head, changed).items()
        return all(test.test_one(way, max_examples=current().in_passing).decision != "above" for test, way in ways)

    def _intact_above(self, head: Head, circuit: Circuit) -> dict[SequentialTest, Circuit]:
        """Return each test with content heads above intact that a change of this head affects, with its circuit.

        These are the tests of all layers from the last one not above the head.
        """
        layers = [layer for layer in self.intact if not any(layer < other <= head.layer for other in self.intact)]
        return {self.intact[layer]: intact_above(layer, circuit, self.looking) for layer in layers}

    def note(self, step: str, circuit: Circuit, changes: Sequence[Change], taken: int | None) -> None:
        """Add changes of a circuit to the log; one of them may have been taken."""
        tested = self.test.test({place: circuit.with_head(*one) for place, one in enumerate(changes)}, max_examples=0)
        for place, (head, mechanism) in enumerate(changes):
            loss, kept = tested[place], place == taken
            self.trials.append(Trial(step=step, head=head, mechanism=str(mechanism), tested=loss, taken=kept))


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

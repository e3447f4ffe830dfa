"""Fit a circuit by one change at a time, with all heads replaced.

    grow        give heads paths until the loss is low enough
    prune       remove redundant paths
    simplify    give every head the simplest mechanism that the loss allows (paper, Appendix E, step 3)

The log has every change that was tried, with its loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from circuits.circuit import Circuit, Head
from circuits.discovery.observed_paths import ObservedPaths
from circuits.losses.loss import Mean
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import ELSEWHERE, REPLACEMENTS, SIMPLE, Idle, Mechanism
from circuits.mechanisms.one_hot import OneHot
from circuits.results import Result
from circuits.settings import current
from circuits.utils.progress import Progress

Change = tuple[Head, Mechanism]  # a head, and its new mechanism


class Trial(Result):
    """A change that was tried.

    Attributes:
        step: ``gates``, ``grow``, ``prune``, ``simplify`` or ``steer``.
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
        enough = current().enough
        loss = self.test.test({None: circuit}, min_examples=enough, max_examples=enough)[None]
        while loss.excess >= self.test.threshold:
            changes = [change for head in circuit.heads for change in self._others(head, circuit.heads[head])]
            changed = [circuit.with_head(*change) for change in changes]
            seen = self.test.test(dict(enumerate(changed)), max_examples=current().glanced)
            best = min(seen, key=lambda place: seen[place].excess, default=None)
            if best is not None:
                loss = self.test.test({0: changed[best]}, min_examples=enough, max_examples=enough)[0]
                after, before = (losses.mean(dim=1) for losses in self.test.each([changed[best], circuit], enough))
                gain = Mean.of(after - before)
                best = best if gain.mean < -current().sure * gain.standard_error else None
            self.note("grow", circuit, changes, best)
            if best is None:
                break
            circuit = changed[best]
        return circuit

    def prune(self, circuit: Circuit) -> Circuit:
        """Remove paths, the least costly first, as long as the losses stay low enough.

        A path is left out, or its row is made uniform or identity. In each pass a head loses one path at most.
        """
        before: Circuit | None = None
        while circuit != before:
            before = circuit
            for ways in (self._fewer, _emptied):
                changes, done = [*ways(circuit)], set()
                for place in self._screened("prune", circuit, changes, by_cost=True):
                    change = changes[place]
                    if change[0] not in done and (changed := self.tried("prune", circuit, change)) != circuit:
                        circuit = changed
                        done.add(change[0])
        return circuit

    def simplify(self, circuit: Circuit, progress: Progress) -> Circuit:
        """Give every head, from the last to the first, its simplest mechanism that keeps the losses low enough."""
        for done, head in enumerate(reversed([*circuit.heads]), start=1):
            changes = [(head, simpler) for simpler in dict.fromkeys(self._simpler(head, circuit.heads[head]))]
            for place in self._screened("simplify", circuit, changes):
                if (changed := self.tried("simplify", circuit, changes[place])) != circuit:
                    circuit = changed
                    break
            progress(done / len(circuit.heads))
        return circuit

    def _screened(self, step: str, circuit: Circuit, changes: Sequence[Change], by_cost: bool = False) -> Sequence[int]:
        """Return the changes that are not clearly too costly on a few examples, in order, or cheapest first."""
        changed = {place: circuit.with_head(*change) for place, change in enumerate(changes)}
        seen = self.test.test(changed, max_examples=current().glanced)
        left = [place for place, tested in seen.items() if tested.decision != "above"]
        self.note(step, circuit, [changes[place] for place in seen if place not in left], None)
        return sorted(left, key=lambda place: seen[place].excess) if by_cost else left

    def tried(self, step: str, circuit: Circuit, change: Change) -> Circuit:
        """Return the circuit with a change, if it keeps all losses low enough and costs little by itself."""
        (head, mechanism), changed, most = change, circuit.with_head(*change), current().in_passing
        low = self._guides(head, changed, current().glanced)
        low = low and self.test.test_one(changed, max_examples=most).decision == "below"
        limit = current().kept * current().least
        low = low and self.test.test({0: changed}, than=circuit, limit=limit, max_examples=most)[0].decision == "below"
        if mechanism.paths and not circuit.heads[head].paths:  # a head gets no path that nobody would miss
            low = low and self._missed(head, circuit)
        low = low and self._guides(head, changed, most)
        self.note(step, circuit, [change], 0 if low else None)
        return changed if low else circuit

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
        """Yield the other mechanisms of a head that is not idle: all of its paths, or something simpler."""
        if mechanism == Idle():
            return
        rows = self.observed.rows[head]
        if rows and isinstance(mechanism, FixedPattern):
            yield head, self.observed.mechanism(head, rows)
        yield from ((head, other) for other in dict.fromkeys(self._simpler(head, mechanism)) if other != mechanism)

    def _simpler(self, head: Head, mechanism: Mechanism) -> Iterator[Mechanism]:
        """Yield the mechanisms that could replace that of a head, simplest first; none for an idle head.

        No path, fixed positions that roles attend to, paths, a map of all positions.
        """
        if mechanism == Idle():
            return
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
        """Whether making a head uniform or identity has an effect on a loss, either way."""
        for without in (circuit.with_head(head, row) for row in REPLACEMENTS):
            ways = {self.test: without, **self._intact_above(head, without)}
            bases = {self.test: circuit, **self._intact_above(head, circuit)}
            limit, most = current().kept * current().least, current().in_passing
            costs = [
                test.test({0: way}, than=bases[test], limit=limit, max_examples=most)[0] for test, way in ways.items()
            ]
            if not any(cost.decision == "above" for cost in costs):
                return False
        return True

    def _guides(self, head: Head, changed: Circuit, n: int) -> bool:
        """Whether after a change of this head no loss is clearly too high with the content heads above intact."""
        ways = self._intact_above(head, changed).items()
        return all(test.test_one(way, max_examples=n).decision != "above" for test, way in ways)

    def _intact_above(self, head: Head, circuit: Circuit) -> dict[SequentialTest, Circuit]:
        """Return each test with content heads above intact that a change of this head affects, with its circuit.

        These are the tests of all layers from the last one not above the head.
        """
        layers = [layer for layer in self.intact if not any(layer < other <= head.layer for other in self.intact)]
        return {self.intact[layer]: intact_above(layer, circuit, self.looking) for layer in layers}

    def note(self, step: str, circuit: Circuit, changes: Sequence[Change], taken: int | None) -> None:
        """Add changes of a circuit to the log; one of them may have been taken."""
        ways = {place: circuit.with_head(*one) for place, one in enumerate(changes)}
        tested = self.test.test(ways, max_examples=current().glanced)
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

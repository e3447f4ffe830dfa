"""Find the circuit of a model with many heads: gates rank all heads at once, and few circuits are really ablated.

1. gates     every head is a mixture of its average pattern and its own, once also of one-hot paths to what its roles
             look at; how much of each is learned while the price of all but the first rises (gates.py)
2. settle    from some steps before the price of the smallest circuit of either run whose loss seems low, gates are
             learned again and pushed towards 0 or 1; of all circuits so far, the smallest with a low loss is taken
3. simplify  a head that nobody misses gets its average pattern; an intact one whose paths do as well gets these

No head is idle: all others attend as they do on average. Whether their outputs can be ablated, too, is not asked.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Trial
from circuits.discovery.gates import learned_gates
from circuits.discovery.soft_paths import one_hot_paths, soft_paths
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.mechanism import Intact, Mechanism
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress, part_of

STEPS, SETTLING = 64, 48  # of gates
FIRST, EVERY = 8, 4  # steps after which circuits are tried, and from one to the next
MOST, RISE = 0.5, 64  # the last price of an intact head, as a share of the threshold; it is so many times the first
BACK, AHEAD = 20, 8  # gates settle from so many steps before the best circuit's, up to the price of so many before it
MISSED = 5  # heads in a row without which the loss is too high: the rest, which cost more, are not tried


@dataclass(frozen=True)
class Learned:
    """What gates learned between some ways while the price rose (``learned_gates``)."""

    ways: Sequence[Circuit]
    gates: Mapping[Head, Float[Tensor, "step circuit"]]


@dataclass(frozen=True)
class Ranked:
    """A search on one model.

    Attributes:
        test: the test of a circuit's loss.
        examples: the examples that gates are learned on.
        averages: what every head does on average.
        trials: the log.
    """

    test: SequentialTest
    examples: Examples
    averages: Averages
    trials: list[Trial] = field(default_factory=list)

    def circuit(self, shown_by: Examples, progress: Progress) -> Circuit:
        """Return the circuit; attention on the examples ``shown_by`` suggests paths."""
        means: dict[Head, Mechanism] = {**self.averages.patterns}
        soft = soft_paths(self.test.model, shown_by)
        hot = one_hot_paths(soft, self.averages, self.test.roles)
        ways = [[Circuit(means), Circuit()]]
        if hot:
            ways.append([Circuit(means), Circuit({**means, **hot}), Circuit()])
        made, rough = list[Circuit](), list[tuple[bool, int, Learned, int]]()
        for place, one in enumerate(ways):
            learned = self._learned(one, part_of(progress, 0.3 * place, 0.3 * place + 0.3))
            steps = range(STEPS - 1, FIRST, -EVERY)
            found = [circuit_at(step, learned) for step in steps]  # more heads lower the loss, even below 0
            first = bisect_left(found[:-1], True, key=lambda one: self._seen(one).excess < self.test.threshold)
            made += found[first:]
            high = self.test.size(self._seen(found[first])) >= self.test.threshold
            rough.append((high, len(found[first].looking), learned, steps[first]))
        *_, learned, step = min(rough, key=lambda one: one[:2])
        circuit = self._fewest([*self._settled(learned, step, part_of(progress, 0.6, 0.8)), *made])
        circuit = self._simpler("prune", circuit, means)
        for paths in (hot, soft):
            intact = [head for head in circuit.looking if circuit.heads[head] == Intact() and head in paths]
            circuit = self._simpler("simplify", circuit, {head: paths[head] for head in intact})
        return circuit

    def _price(self, step: int) -> float:
        return MOST * self.test.threshold * self.test.scale.width * RISE ** ((step + 1) / STEPS - 1)

    def _learned(self, ways: Sequence[Circuit], progress: Progress) -> Learned:
        given, prices = (self.test.model, self.test.task, self.examples), (self._price(-1), self._price(STEPS - 1))
        return Learned(ways, learned_gates(*given, ways, prices, STEPS, progress=progress))

    def _settled(self, learned: Learned, step: int, progress: Progress) -> list[Circuit]:
        """Return circuits of gates that are pushed towards 0 or 1, from some steps before one step of others."""
        first, last = max(0, step - BACK), max(0, step - AHEAD)
        given, ways = (self.test.model, self.test.task, self.examples), learned.ways
        start = {head: weights[first] for head, weights in learned.gates.items()}
        gates = learned_gates(*given, ways, (self._price(first), self._price(last)), SETTLING, start, progress)
        return [circuit_at(step, Learned(ways, gates)) for step in range(SETTLING - 1, SETTLING // 2, -EVERY)]

    def _seen(self, circuit: Circuit) -> DecidedLoss:
        return self.test.test_one(circuit, max_examples=current().enough)

    def _fewest(self, circuits: Iterable[Circuit]) -> Circuit:
        """Return the circuit with the fewest heads that look whose loss is low, or else that with the lowest."""
        made = sorted(circuits, key=lambda one: len(one.looking))
        seen: list[DecidedLoss] = []
        for best in made:
            seen.append(self._seen(best))
            if self.test.size(seen[-1]) < self.test.threshold and self._is_low(best):
                break
        else:
            best = made[min(range(len(made)), key=lambda place: self.test.size(seen[place]))]
        for circuit, tested in zip(made, seen, strict=False):
            for head in sorted({*circuit.looking} - {*(trial.head for trial in self.trials)}):
                said, taken = str(circuit.heads[head]), head in best.looking
                self.trials.append(Trial(step="gates", head=head, mechanism=said, tested=tested, taken=taken))
        return best

    def _simpler(self, step: str, circuit: Circuit, ways: Mapping[Head, Mechanism]) -> Circuit:
        """Return the circuit with simpler mechanisms for those heads that nobody misses, if its loss is low.

        The cheapest come first, until ``MISSED`` in a row are missed.
        """
        if not self._is_low(circuit):
            return circuit
        made, base, missed, tried = [circuit], circuit, 0, dict[Head, DecidedLoss]()  # base was run on many examples
        changed = {head: circuit.with_head(head, ways[head]) for head in circuit.looking if head in ways}
        seen = self.test.test(changed, max_examples=current().few)
        for head in sorted(seen, key=lambda head: self.test.size(seen[head])):
            if missed == MISSED:
                break
            fewer, tried[head] = made[-1].with_head(head, ways[head]), seen[head]
            missed += 1
            if seen[head].decision != "above" and self._stays_low(fewer, base):
                made, missed, tried[head] = [*made, fewer], 0, self._seen(fewer)
                base = fewer if tried[head].loss.n_examples >= current().in_passing else base
        while len(made) > 1 and not self._is_low(made[-1]):  # of many decisions on few examples, some err
            made.pop()
        for head, tested in tried.items():
            taken = made[-1].heads[head] == ways[head]
            self.trials.append(Trial(step=step, head=head, mechanism=str(ways[head]), tested=tested, taken=taken))
        return made[-1]

    def _is_low(self, circuit: Circuit) -> bool:
        """Whether a loss is low on many examples, whole; of many decisions on few, those would be taken that err."""
        n = current().in_passing
        if self.test.test({None: circuit}, min_examples=n, max_examples=n)[None].decision != "below":
            return False
        whole = self.test.excess(circuit, bounded=False).mean
        return (abs(whole) if self.test.two_sided else whole) < self.test.threshold

    def _stays_low(self, circuit: Circuit, changed_from: Circuit) -> bool:
        """Whether a change leaves a loss low, by the differences on few examples; by many, if these do not tell."""
        if self._seen(circuit).decision == "above":
            return False
        base, more = self.test.excess(changed_from), self.test.excess(circuit, changed_from)
        expected, sure = base.mean + more.mean, current().sure
        left = self.test.threshold - (abs(expected) if self.test.two_sided else expected)
        if left <= sure * base.standard_error:
            return False
        return left > sure * math.hypot(base.standard_error, more.standard_error) or self._is_low(circuit)


def circuit_at(step: int, learned: Learned) -> Circuit:
    """Return the circuit after a step of gates between some ways, the average patterns first.

    A head with less than half of its average pattern has what else it has most of.
    """
    heads: dict[Head, Mechanism] = {**learned.ways[0].heads}
    for head, weights in learned.gates.items():
        average, *others = weights[step].tolist()
        if average < 0.5:
            heads[head] = learned.ways[1 + others.index(max(others))].heads.get(head, Intact())
    return Circuit(heads)

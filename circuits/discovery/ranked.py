"""Find the circuit of a model with many heads: gates rank all heads at once, and few circuits are really ablated.

1. gates     every head is a mixture of its average pattern, one-hot paths to what its roles look at, and its own
             pattern; how much of each is learned while the price of all but the first rises (gates.py)
2. fewest    of the circuits at all prices, the smallest with a low loss; this and what is above is done with and
             without paths, and the smaller circuit is taken
3. settle    from a lower price on, gates are learned again and pushed towards 0 or 1; the smallest is taken again
4. simplify  a head that nobody misses gets its average pattern; an intact one whose paths do as well gets these

No head is idle: all others attend as they do on average. Whether their outputs can be ablated, too, is not asked.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Trial
from circuits.discovery.gates import learned_gates
from circuits.discovery.soft_paths import one_hot_paths, soft_paths
from circuits.losses.sequential_test import OWN, SequentialTest
from circuits.mechanisms.mechanism import Intact, Mechanism
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress, part_of

STEPS, SETTLING = 64, 48  # of gates
FIRST, EVERY = 8, 4  # steps after which circuits are tried, and from one to the next
MOST, RISE = 0.5, 64  # the last price of an intact head, as a share of the threshold; it is so many times the first
BACK = 20  # settling starts from the gates so many steps before those of the best circuit, and reaches their price
MISSED = 8  # heads in a row without which the loss is too high: the rest, which cost more, are not tried


@dataclass(frozen=True)
class Priced:
    """What gates learned between some ways while the price rose (``learned_gates``), as circuits, and the best step."""

    ways: Sequence[Circuit]
    gates: Mapping[Head, Float[Tensor, "step circuit"]]
    made: Mapping[int, Circuit]
    best: int


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
        found = [self._priced(one, part_of(progress, 0.3 * place, 0.3 * place + 0.3)) for place, one in enumerate(ways)]
        found.sort(key=lambda one: len(one.made[one.best].looking))
        best = self._fewest({place: one.made[one.best] for place, one in enumerate(found)})
        circuit = self._simpler("prune", self._settled(found[best], part_of(progress, 0.6, 0.8)), means)
        for paths in (hot, soft):
            intact = [head for head in circuit.looking if circuit.heads[head] == Intact() and head in paths]
            circuit = self._simpler("simplify", circuit, {head: paths[head] for head in intact})
        return circuit

    def _price(self, step: int) -> float:
        return MOST * self.test.threshold * self.test.scale.width * RISE ** ((step + 1) / STEPS - 1)

    def _priced(self, ways: Sequence[Circuit], progress: Progress) -> Priced:
        """Learn gates between some ways while the price rises, and find the smallest circuit with a low loss."""
        given = self.test.model, self.test.task, self.examples, ways
        gates = learned_gates(*given, (self._price(-1), self._price(STEPS - 1)), STEPS, progress=progress)
        made = {step: circuit_at(step, gates, ways) for step in range(STEPS - 1, FIRST, -EVERY)}
        return Priced(ways, gates, made, self._fewest(made))

    def _settled(self, found: Priced, progress: Progress) -> Circuit:
        """Return the smallest circuit with a low loss, also of those of gates that are pushed towards 0 or 1."""
        first, given = max(0, found.best - BACK), (self.test.model, self.test.task, self.examples, found.ways)
        start = {head: weights[first] for head, weights in found.gates.items()}
        gates = learned_gates(*given, (self._price(first), self._price(found.best)), SETTLING, start, progress)
        now = [circuit_at(step, gates, found.ways) for step in range(SETTLING - 1, SETTLING // 2, -EVERY)]
        every = dict(enumerate(sorted([*now, *found.made.values()], key=lambda one: len(one.looking))))
        return every[self._fewest(every)]

    def _fewest(self, made: Mapping[int, Circuit]) -> int:
        """Return the key of the first of some circuits, each with more heads that look, whose loss is low; or the best.

        Bisection: more heads are supposed to lower the loss, also below the model's own.
        """
        seen = self.test.test(made, max_examples=current().few)
        possible = [key for key, one in seen.items() if one.decision != "above" or one.excess < 0]
        found = min(seen, key=lambda key: self.test.size(seen[key]))
        first, beyond = 0, len(possible)
        while first < beyond:
            middle = (first + beyond) // 2
            one = self.test.test_one(made[possible[middle]], max_examples=current().in_passing)
            if one.decision == "below" or one.excess < 0:
                found, beyond = possible[middle], middle
            else:
                first = middle + 1
        for key, circuit in made.items():
            for head in sorted({*circuit.looking} - {*(trial.head for trial in self.trials)}):
                said, taken = str(circuit.heads[head]), head in made[found].looking
                self.trials.append(Trial(step="gates", head=head, mechanism=said, tested=seen[key], taken=taken))
        return found

    def _simpler(self, step: str, circuit: Circuit, ways: Mapping[Head, Mechanism]) -> Circuit:
        """Return the circuit with simpler mechanisms for those heads that nobody misses.

        The cheapest come first, until ``MISSED`` in a row are missed. If the loss is too far below the model's own, a
        head is replaced whenever that brings it nearer.
        """
        made, base = [circuit], circuit  # the last one was run on many examples
        sure = int(self._is_low(circuit))  # so many of those made stay, whatever many examples say; 0 before one is low
        changed = {head: circuit.with_head(head, ways[head]) for head in circuit.looking if head in ways}
        seen = self.test.test(changed, max_examples=current().few)
        now, missed = self.test.test_one(circuit, max_examples=current().enough), 0
        for head in sorted(seen, key=lambda head: self.test.size(seen[head])):
            if missed == MISSED:
                break
            fewer, tested = made[-1].with_head(head, ways[head]), seen[head]
            taken = tested.decision != "above" and self._stays_low(fewer, base)
            sure = sure or (len(made) if taken else 0)
            if taken or (not sure and now.excess < 0):
                tested = self.test.test_one(fewer, max_examples=current().enough)
                taken |= now.excess < tested.excess < -now.excess
            self.trials.append(Trial(step=step, head=head, mechanism=str(ways[head]), tested=tested, taken=taken))
            made, now, missed = ([*made, fewer], tested, 0) if taken else (made, now, missed + 1)
            base = fewer if taken and self.test.n_of(fewer) >= current().in_passing else base
        while sure and len(made) > sure and not self._is_low(made[-1]):
            made.pop()
            last = max(place for place, trial in enumerate(self.trials) if trial.taken)
            self.trials[last] = self.trials[last].model_copy(update={"taken": False})
        return made[-1]

    def _is_low(self, circuit: Circuit) -> bool:
        """Whether a loss is low on many examples; of many decisions on few, those would be taken that err."""
        n = current().in_passing
        return self.test.test({None: circuit}, min_examples=n, max_examples=n)[None].decision == "below"

    def _stays_low(self, circuit: Circuit, changed_from: Circuit) -> bool:
        """Whether a change leaves a loss low, by the differences on few examples; by many, if these do not tell."""
        if self.test.size(self.test.test_one(circuit, max_examples=current().enough)) >= self.test.threshold:
            return False
        base, more = self.test.difference(changed_from, OWN), self.test.difference(circuit, changed_from)
        expected, sure = base.mean + more.mean, current().sure
        left = self.test.threshold * self.test.scale.width - (abs(expected) if self.test.two_sided else expected)
        if left <= sure * base.standard_error:
            return False
        return left > sure * math.hypot(base.standard_error, more.standard_error) or self._is_low(circuit)


def circuit_at(step: int, gates: Mapping[Head, Float[Tensor, "step circuit"]], ways: Sequence[Circuit]) -> Circuit:
    """Return the circuit after a step of ``learned_gates`` between some ways, the average patterns first.

    A head with less than half of its average pattern has what else it has most of.
    """
    heads: dict[Head, Mechanism] = {**ways[0].heads}
    for head, weights in gates.items():
        average, *others = weights[step].tolist()
        if average < 0.5:
            heads[head] = ways[1 + others.index(max(others))].heads.get(head, Intact())
    return Circuit(heads)

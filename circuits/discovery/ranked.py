"""Find the circuit of a model with many heads: gates rank all heads at once, and few circuits are really ablated.

1. gates     every head is a mixture of its average pattern, what its roles look at (soft and one-hot paths), and its
             own pattern; how much of each is learned while the price of all but the first rises (gates.py)
2. fewest    of the circuits at all prices, the smallest with a low loss
3. prune     a head that nobody misses gets its average pattern

No head is idle: all others attend as they do on average. Whether their outputs can be ablated, too, is not asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Trial
from circuits.discovery.gates import STEPS, learned_gates
from circuits.discovery.soft_paths import one_hot_paths, soft_paths
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Intact, Mechanism
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress, part_of

SETTLED, EVERY = 8, 4  # steps after which circuits are tried, and from one to the next
INTACT = 0.5  # what an intact head costs in the end, as a share of the threshold
SOFT, ONE_HOT = 0.8, 0.3  # what paths cost as a share of that; those without weights say more
MISSED = 8  # heads in a row without which the loss is too high: the rest, which cost more, are not tried


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
        ways = [Circuit(means), Circuit({**means, **soft}), Circuit({**means, **hot}), Circuit()]
        most = INTACT * self.test.threshold * self.test.scale.width
        prices, part = [0.0, SOFT * most, ONE_HOT * most, most], part_of(progress, 0.1, 0.6)
        gates = learned_gates(self.test.model, self.test.task, self.examples, ways, prices, part)
        made = [circuit_at(step, gates, ways) for step in range(STEPS - 1, SETTLED, -EVERY)]
        return self._pruned(self._fewest(made), means)

    def _fewest(self, made: Sequence[Circuit]) -> Circuit:
        """Return the first of some circuits, each with more heads that look, whose loss is low; else the best one."""
        seen = self.test.test(dict(enumerate(made)), max_examples=current().few)
        possible = [n for n, one in seen.items() if one.decision != "above" or one.excess < 0]
        found = min(seen, key=lambda n: self.test.size(seen[n]))
        first, beyond = 0, len(possible)
        while first < beyond:  # bisection: more heads are supposed to lower the loss, also below the model's own
            middle = (first + beyond) // 2
            one = self.test.test_one(made[possible[middle]], max_examples=current().in_passing)
            if one.decision == "below" or one.excess < 0:
                found, beyond = possible[middle], middle
            else:
                first = middle + 1
        for n, circuit in enumerate(made):
            for head in sorted({*circuit.looking} - {*(trial.head for trial in self.trials)}):
                said = str(circuit.heads[head])
                self.trials.append(Trial(step="gates", head=head, mechanism=said, tested=seen[n], taken=n <= found))
        return made[found]

    def _pruned(self, circuit: Circuit, means: Mapping[Head, Mechanism]) -> Circuit:
        """Return the circuit without heads that nobody misses; they get their average pattern.

        The cheapest come first, until ``MISSED`` in a row are missed. If the loss is too far below the model's own, a
        head goes whenever that brings it nearer.
        """
        kept, low = circuit.looking, self._is_low(circuit)
        seen = self.test.test({head: circuit.with_head(head, means[head]) for head in kept}, max_examples=current().few)
        now, missed = self.test.test_one(circuit, max_examples=current().enough), 0
        for head in sorted(kept, key=lambda head: self.test.size(seen[head])):
            if missed == MISSED:
                break
            fewer, tested = circuit.with_head(head, means[head]), seen[head]
            taken = tested.decision != "above" and self._is_low(fewer)
            if taken or (not low and now.excess < 0):
                tested = self.test.test_one(fewer, max_examples=current().enough)
                taken |= now.excess < tested.excess < -now.excess
            self.trials.append(Trial(step="prune", head=head, mechanism=str(means[head]), tested=tested, taken=taken))
            circuit, now, missed = (fewer, tested, 0) if taken else (circuit, now, missed + 1)
            low = low or (taken and tested.decision == "below")
        return circuit

    def _is_low(self, circuit: Circuit) -> bool:
        """Whether a loss is low on many examples; of many decisions on few, those would be taken that err."""
        n = current().in_passing
        return self.test.test({None: circuit}, min_examples=n, max_examples=n)[None].decision == "below"


def circuit_at(step: int, gates: Mapping[Head, Float[Tensor, "step circuit"]], ways: Sequence[Circuit]) -> Circuit:
    """Return the circuit after a step: a head with less than half of its average pattern has what else it has most of.

    Args:
        step: the step.
        gates: what every head has of each circuit's mechanism, after each step (``learned_gates``).
        ways: these circuits, the average patterns first.
    """
    heads: dict[Head, Mechanism] = {**ways[0].heads}
    for head, weights in gates.items():
        average, *others = weights[step].tolist()
        if average < 0.5:
            heads[head] = ways[1 + others.index(max(others))].heads.get(head, Intact())
    return Circuit(heads)

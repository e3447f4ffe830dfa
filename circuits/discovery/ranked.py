"""Find the circuit of a model with many heads: gates rank all heads at once, and few circuits are really ablated.

1. gates     every head is a mixture of its average pattern, what its roles look at (soft, or one-hot paths: both are
             tried), and its own pattern; how much of each is learned (gates.py)
2. fewest    the heads with the least of their average pattern get the rest of it instead, as few as the loss allows
3. prune     a head that nobody misses gets its average pattern
4. idle      of the heads with an average pattern as many as possible are idle
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Trial
from circuits.discovery.gates import STEPS, learned_gates
from circuits.discovery.idle import idle_at_once
from circuits.discovery.soft_paths import one_hot_paths, soft_paths
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Idle, Intact, Mechanism
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress, part_of

MOST = 6  # at most one head of so many is intact or has a path
HEADS = {"soft": 32, "one_hot": 8}  # an intact head is worth the threshold divided by so many; sharp paths need fewer
OF_INTACT = {"path": 0.4, "fixed": 0.02}  # the prices of other mechanisms
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
        hot, found = one_hot_paths(soft, self.averages, self.test.roles), list[Circuit]()
        progress(0.1)
        for kind, n in HEADS.items():
            ways = [Circuit(means), Circuit({**means, **(soft if kind == "soft" else hot)}), Circuit()]
            part = part_of(progress, 0.1 + 0.4 * len(found), 0.4 + 0.4 * len(found))
            gates = self._gates(ways, [0.0, OF_INTACT["path"] / n, 1 / n], part)
            order = sorted(gates, key=lambda head: gates[head][0])[: max(1, len(means) // MOST)]
            best = {head: ways[1 if gates[head][1] > gates[head][2] else 2] for head in order}
            changes = [(head, best[head].heads.get(head, Intact())) for head in order]
            found.append(self._pruned(self._fewest(ways[0], changes), means))
        circuit = min(found, key=self._rank)
        fixed = [head for head, one in circuit.heads.items() if isinstance(one, FixedPattern)]
        idle = Circuit({**circuit.heads, **dict.fromkeys(fixed, Idle())})
        gates = self._gates([idle, circuit], [0.0, OF_INTACT["fixed"] / HEADS["soft"]], part_of(progress, 0.9, 1.0))
        at_once = idle_at_once(self.test, sorted(fixed, key=lambda head: gates[head][1]), circuit)
        return Circuit({**circuit.heads, **dict.fromkeys(at_once, Idle())})

    def _gates(self, ways: Sequence[Circuit], prices: Sequence[float], progress: Progress) -> dict[Head, list[float]]:
        test, steps = self.test, STEPS if len(ways) > 2 else STEPS // 2
        own = [test.threshold * test.scale.width * price for price in prices]
        return learned_gates(test.model, test.task, self.examples, self.averages, ways, own, progress, steps)

    def _fewest(self, base: Circuit, changes: Sequence[tuple[Head, Mechanism]]) -> Circuit:
        """Return a circuit with the first changes, as few as the loss allows; if it allows none, the best one."""
        made = [base]
        for change in changes:
            made.append(made[-1].with_head(*change))
        seen = self.test.test(dict(enumerate(made)), max_examples=current().few)
        possible = [n for n, one in seen.items() if one.decision != "above"]
        found = min(seen, key=lambda n: self.test.size(seen[n]))
        first, beyond = 0, len(possible)
        while first < beyond:  # bisection: after one that is low, all are supposed to be
            middle = (first + beyond) // 2
            if self._is_low(made[possible[middle]], current().in_passing):
                found, beyond = possible[middle], middle
            else:
                first = middle + 1
        for n, (head, mechanism) in enumerate(changes, start=1):
            self.trials.append(
                Trial(step="gates", head=head, mechanism=str(mechanism), tested=seen[n], taken=n <= found)
            )
        return made[found]

    def _pruned(self, circuit: Circuit, means: Mapping[Head, Mechanism]) -> Circuit:
        """Return the circuit without heads that nobody misses; they get their average pattern.

        The cheapest come first, until ``MISSED`` in a row are missed. Of a loss that is not low, any less will do.
        """
        kept, low = [head for head, one in circuit.heads.items() if one.varies], self._is_low(circuit, current().enough)
        seen = self.test.test({head: circuit.with_head(head, means[head]) for head in kept}, max_examples=current().few)
        now, missed = self.test.test_one(circuit, max_examples=0), 0
        for head in sorted(kept, key=lambda head: self.test.size(seen[head])):
            if missed == MISSED:
                break
            fewer = circuit.with_head(head, means[head])
            taken = seen[head].decision != "above" and self._is_low(fewer, current().enough)
            tested = self.test.test_one(fewer, max_examples=current().few) if taken or not low else seen[head]
            taken |= not low and self.test.size(tested) < self.test.size(now)
            self.trials.append(Trial(step="prune", head=head, mechanism=str(means[head]), tested=tested, taken=taken))
            circuit, now, missed = (fewer, tested, 0) if taken else (circuit, now, missed + 1)
            low = low or (taken and tested.decision == "below")
        return circuit

    def _is_low(self, circuit: Circuit, n: int) -> bool:
        return self.test.test_one(circuit, max_examples=n).decision == "below"

    def _rank(self, circuit: Circuit) -> tuple[bool, int, float]:
        """Return what circuits are compared by: a low loss, and of those few heads that look at anything."""
        one = self.test.test_one(circuit, max_examples=current().in_passing)
        low, n_looking = one.decision == "below", sum(kind.varies for kind in circuit.heads.values())
        return not low, n_looking if low else 0, self.test.size(one)

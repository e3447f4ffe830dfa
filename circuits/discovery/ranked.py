"""Find the circuit of a model with many heads: rank them by gradients, and ablate around the cut only.

1. intact    all heads get their average pattern; those that this costs most stay intact, as few as the loss allows
2. paths     if that leaves the loss far too high, all get what their roles look at on average, those that this costs
             most stay intact, and then as few of the others as possible keep their path
3. refine    the heads are ranked anew from there; fewer may be enough
4. looking   of the intact heads as many as possible get what their roles look at
5. prune     a head that nobody misses gets its average pattern
6. idle      of the heads with an average pattern as many as possible are idle
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from circuits.averages import Averages
from circuits.circuit import Circuit, Head
from circuits.discovery.fitting import Trial
from circuits.discovery.idle import idle_at_once
from circuits.discovery.ranking import costs_of_change
from circuits.discovery.soft_paths import one_hot_paths, soft_paths
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Idle, Intact, Mechanism
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import Progress, part_of

MOST = 6  # at most one head of so many is intact or has a path
FAR = 2  # times the threshold: beyond it, all heads at their average patterns are no place to begin
MISSED = 8  # heads in a row without which the loss is too high: the rest, which cost more, are not tried


@dataclass(frozen=True)
class Ranked:
    """A search on one model.

    Attributes:
        test: the test of a circuit's loss.
        examples: the examples that rank heads.
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
        most, soft = max(1, len(means) // MOST), soft_paths(self.test.model, shown_by)
        progress(0.05)
        circuit = self._intact(means, most, part_of(progress, 0.05, 0.25))
        if self.test.size(self.test.test_one(circuit, max_examples=current().enough)) > FAR * self.test.threshold:
            told = self._intact({**means, **soft}, most, part_of(progress, 0.25, 0.35))
            costs = self.costs(told, _with(told, means), part_of(progress, 0.35, 0.45))
            order = [head for head in _by_cost(costs) if head in soft][:most]
            base = _with(told, {head: means[head] for head in soft})
            hot = one_hot_paths(soft, self.averages, self.test.roles)
            ways = [
                self._fewest("paths", base, [(head, paths[head]) for head in order if head in paths])
                for paths in (soft, hot)
            ]
            circuit = min([circuit, *ways], key=self._rank)
        progress(0.5)
        circuit = self._refined(circuit, means, most, part_of(progress, 0.5, 0.6))
        circuit = self._told(circuit, soft, part_of(progress, 0.6, 0.7))
        circuit = self._pruned(circuit, means, part_of(progress, 0.7, 0.85))
        still = [head for head, one in circuit.heads.items() if isinstance(one, FixedPattern)]
        costs = self.costs(circuit, _with(circuit, dict.fromkeys(still, Idle())), part_of(progress, 0.85, 0.95))
        idle = idle_at_once(self.test, [*reversed(_by_cost(costs))], circuit)
        return _with(circuit, dict.fromkeys(idle, Idle()))

    def costs(self, one: Circuit, other: Circuit, progress: Progress) -> dict[Head, float]:
        """Return what the change of each head from one circuit to another costs."""
        test = self.test
        return costs_of_change(test.model, test.task, self.examples, self.averages, one, other, progress)

    def _intact(self, instead: Mapping[Head, Mechanism], most: int, progress: Progress) -> Circuit:
        """Return the circuit with as few heads intact as the loss allows, and all others replaced."""
        replaced = Circuit(instead)
        order = _by_cost(self.costs(Circuit(), replaced, progress))[:most]
        return self._fewest("intact", replaced, [(head, Intact()) for head in order])

    def _fewest(self, step: str, base: Circuit, changes: Sequence[tuple[Head, Mechanism]]) -> Circuit:
        """Return a circuit with the first changes, as few as the loss allows; if it allows none, the best one."""
        made = [base]
        for change in changes:
            made.append(made[-1].with_head(*change))
        seen = self.test.test(dict(enumerate(made)), max_examples=current().few)
        lowest = min(seen, key=lambda n: self.test.size(seen[n]))
        found = self._first_low({n: made[n] for n, one in seen.items() if one.decision != "above"}, lowest)
        for n, (head, mechanism) in enumerate(changes, start=1):
            self.trials.append(Trial(step=step, head=head, mechanism=str(mechanism), tested=seen[n], taken=n <= found))
        return made[found]

    def _refined(self, circuit: Circuit, means: Mapping[Head, Mechanism], most: int, progress: Progress) -> Circuit:
        """Return the circuit with the heads that look at content ranked anew, from where it is; fewer may be enough."""
        looking = {head: one for head, one in circuit.heads.items() if one.varies}
        loses = self.costs(circuit, Circuit(means), part_of(progress, 0.0, 0.5))
        gains = self.costs(circuit, Circuit(), part_of(progress, 0.5, 1.0))
        costs = {head: loses[head] if head in looking else -gains[head] for head in means}
        order = [(head, looking.get(head, Intact())) for head in _by_cost(costs)[:most]]
        return min([circuit, self._fewest("refine", Circuit(means), order)], key=self._rank)

    def _told(self, circuit: Circuit, paths: Mapping[Head, Mechanism], progress: Progress) -> Circuit:
        """Return the circuit with paths for as many intact heads as the loss allows, the cheapest first."""
        others = {head: paths[head] for head, one in circuit.heads.items() if one == Intact() and head in paths}
        order = [*reversed(_by_cost(self.costs(circuit, Circuit({**circuit.heads, **others}), progress)))]
        made = [circuit]
        for head in order:
            made.append(made[-1].with_head(head, paths[head]))
        seen = self.test.test(dict(enumerate(made)), max_examples=current().few)
        possible = {n: made[n] for n, one in reversed(seen.items()) if one.decision != "above"}
        found = self._first_low(possible, 0)
        for n, head in enumerate(order, start=1):
            self.trials.append(
                Trial(step="looking", head=head, mechanism=str(paths[head]), tested=seen[n], taken=n <= found)
            )
        return made[found]

    def _pruned(self, circuit: Circuit, means: Mapping[Head, Mechanism], progress: Progress) -> Circuit:
        """Return the circuit without heads that nobody misses; they get their average pattern.

        The cheapest come first, until ``MISSED`` in a row are missed.
        """
        kept = [head for head, one in circuit.heads.items() if one.varies]
        ways = {head: circuit.with_head(head, means[head]) for head in kept}
        seen = self.test.test(ways, max_examples=current().few)
        missed = 0
        for done, head in enumerate(sorted(kept, key=lambda head: self.test.size(seen[head])), start=1):
            if missed == MISSED:
                break
            fewer = circuit.with_head(head, means[head])
            taken = seen[head].decision != "above" and self._is_low(fewer, current().enough)
            tested = self.test.test_one(fewer, max_examples=current().few) if taken else seen[head]
            self.trials.append(Trial(step="prune", head=head, mechanism=str(means[head]), tested=tested, taken=taken))
            circuit, missed = (fewer, 0) if taken else (circuit, missed + 1)
            progress(done / len(kept))
        return circuit

    def _first_low(self, circuits: Mapping[int, Circuit], otherwise: int) -> int:
        """Return the first of some circuits, in which all after it are supposed to be low, by bisection."""
        keys = [*circuits]
        first, beyond = 0, len(keys)
        while first < beyond:
            middle = (first + beyond) // 2
            if self._is_low(circuits[keys[middle]]):
                beyond = middle
            else:
                first = middle + 1
        return keys[first] if first < len(keys) else otherwise

    def _is_low(self, circuit: Circuit, n: int | None = None) -> bool:
        return self.test.test_one(circuit, max_examples=n or current().in_passing).decision == "below"

    def _rank(self, circuit: Circuit) -> tuple[bool, int, float]:
        """Return what circuits are compared by: a low loss, and of those few heads that look at anything."""
        one = self.test.test_one(circuit, max_examples=current().in_passing)
        low, n_looking = one.decision == "below", sum(kind.varies for kind in circuit.heads.values())
        return not low, n_looking if low else 0, self.test.size(one)


def _with(circuit: Circuit, changes: Mapping[Head, Mechanism]) -> Circuit:
    """Return a circuit with other mechanisms for some of its heads, but not for intact ones."""
    kept = {head for head, one in circuit.heads.items() if one == Intact()}
    return Circuit({**circuit.heads, **{head: one for head, one in changes.items() if head not in kept}})


def _by_cost(costs: Mapping[Head, float]) -> list[Head]:
    return sorted(costs, key=lambda head: -costs[head])

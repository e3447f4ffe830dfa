"""Faithfulness and completeness as in Wang et al. 2022 (*Interpretability in the Wild*, section 4).

There a circuit is a set of heads. Here these are the heads with a path, and all heads whose pattern depends on the
example. They stay intact, and all other heads are ablated:

    faithful    the circuit's heads alone do what the model does: with all others ablated the loss stays low
    complete    no other heads do the circuit's work: after a knockout of any of its heads, the circuit (all others
                ablated, too) and the model have the same loss

A head is ablated by replacing its attention pattern. The verdicts use its average over examples (``mean``, the standard
of the field). ``uniform`` and ``identity`` attention, and, if the examples have counterfactual inputs, the head's
attention on these (``resample``), are measured for comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from circuits.circuit import Circuit, Head
from circuits.losses.loss import SURE, Loss
from circuits.losses.sequential_test import ENOUGH, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Identity, Mechanism, Resample, Uniform

ALL_SUBSETS = 5  # up to this many heads, all subsets are knocked out; of more heads, each one, each two, and all
STANDARD = "mean"  # the ablation that the verdicts use


@dataclass(frozen=True)
class Ablated:
    """The losses under one kind of ablation.

    Attributes:
        ablation: ``mean``, ``uniform``, ``identity`` or ``resample``.
        circuit: the loss with all heads outside the circuit ablated.
        outside: the loss with the circuit's heads ablated and all others intact.
        nothing: the loss with all heads ablated.
    """

    ablation: str
    circuit: Loss
    outside: Loss
    nothing: Loss

    def recovered(self, unablated: Loss) -> float | None:
        """Return the share of the loss increase from ablating all heads that the circuit's heads recover.

        It is 1 if the circuit's heads alone do as well as the model, and None if ablating all heads costs nothing.
        """
        lost = self.nothing.mean - unablated.mean
        return (self.nothing.mean - self.circuit.mean) / lost if lost > 0 else None


@dataclass(frozen=True)
class Knockout:
    """Heads of the circuit replaced with their averages, in the circuit and in the model.

    Attributes:
        heads: the heads that are knocked out.
        circuit: the loss with these heads and all heads outside the circuit ablated.
        model: the loss with these heads ablated and all others intact.
        difference: the difference of the two losses, on the same examples.
    """

    heads: tuple[Head, ...]
    circuit: Loss
    model: Loss
    difference: Loss

    def apart(self, threshold: float) -> bool:
        """Whether the two losses differ by the threshold or more, with a margin of three standard errors."""
        return abs(self.difference.mean) - SURE * self.difference.standard_error >= threshold

    def alike(self, threshold: float) -> bool:
        """Whether the two losses differ by less than the threshold, with a margin of three standard errors."""
        return abs(self.difference.mean) + SURE * self.difference.standard_error < threshold


@dataclass(frozen=True)
class Faithfulness:
    """The losses of a circuit's heads without the others.

    Attributes:
        heads: the heads of the circuit: those with a path, or with a pattern that depends on the example.
        by_ablation: the losses under each kind of ablation, ``mean`` first.
        knockouts: subsets of the heads knocked out in circuit and model, largest difference first.
    """

    heads: tuple[Head, ...]
    by_ablation: tuple[Ablated, ...]
    knockouts: tuple[Knockout, ...]

    @property
    def standard(self) -> Ablated:
        """The ablation that the verdicts use."""
        return next(ablated for ablated in self.by_ablation if ablated.ablation == STANDARD)

    def to_json(self, unablated: Loss) -> dict[str, Any]:
        """Return plain numbers; docs/reports.md explains every key."""
        return {
            "heads": [*map(str, self.heads)],
            "ablations": {
                ablated.ablation: {
                    "circuit": ablated.circuit.to_json(),
                    "outside": ablated.outside.to_json(),
                    "nothing": ablated.nothing.to_json(),
                    "recovered": ablated.recovered(unablated),
                }
                for ablated in self.by_ablation
            },
            "knockouts": [
                {
                    "heads": [*map(str, out.heads)],
                    "circuit": out.circuit.mean,
                    "model": out.model.mean,
                    "difference": out.difference.mean,
                    "standard_error": out.difference.standard_error,
                    "examples": out.difference.n_examples,
                }
                for out in self.knockouts
            ],
        }


def faithfulness(test: SequentialTest, circuit: Circuit, means: Mapping[Head, FixedPattern]) -> Faithfulness:
    """Measure a circuit's heads without the others.

    Mean ablation is measured on all examples of the test, other ablations on ``ENOUGH`` examples. A knockout is
    measured on as many examples as it takes to decide whether circuit and model differ.

    Args:
        test: the sequential test of the model, on fresh examples.
        circuit: the circuit; its heads with a path, or with a pattern that depends on the example, stay intact.
        means: every head's average pattern, over examples that are not in the test.
    """
    kinds: dict[str, dict[Head, Mechanism]] = {
        "mean": {**means},
        "uniform": dict.fromkeys(means, Uniform()),
        "identity": dict.fromkeys(means, Identity()),
    }
    few = test.examples.take(slice(0, ENOUGH))
    if few.counterfactual is not None:
        kinds["resample"] = dict.fromkeys(means, Resample())
    looking = {*circuit.heads_with_paths, *(head for head, mechanism in circuit.heads.items() if mechanism.varies)}
    own = tuple(head for head in means if head in looking)
    ways = {
        kind: [Circuit(patterns).without_heads(intact) for intact in (own, [h for h in means if h not in own], ())]
        for kind, patterns in kinds.items()
    }
    everything_but_own = Circuit(means).without_heads(own)
    subsets = [subset for size in _sizes(len(own)) for subset in combinations(own, size)]
    of_model = [Circuit({head: means[head] for head in subset}) for subset in subsets]
    of_circuit = [Circuit({**everything_but_own.heads, **out.heads}) for out in of_model]
    test.measure([way for of_kind in ways.values() for way in of_kind], ENOUGH)
    by_ablation = []
    for kind, (without_others, *beside) in ways.items():
        (faithful,) = test.measure([without_others], None if kind == STANDARD else ENOUGH)
        by_ablation.append(Ablated(kind, faithful, *test.measure(beside, ENOUGH)))
    pairs = [*zip(of_circuit, of_model, strict=True)]
    knockouts: dict[int, Knockout] = {}
    open_ = [*range(len(subsets))]
    for n in test.rounds[1:] or test.rounds:
        tried = _knocked_out(test, [subsets[place] for place in open_], [pairs[place] for place in open_], n)
        knockouts |= zip(open_, tried, strict=True)
        open_ = [place for place, out in knockouts.items() if out.apart(test.threshold) == out.alike(test.threshold)]
    widest_first = sorted(knockouts.values(), key=lambda out: -abs(out.difference.mean))
    return Faithfulness(own, tuple(by_ablation), tuple(widest_first))


def _sizes(n: int) -> Sequence[int]:
    return range(1, n + 1) if n <= ALL_SUBSETS else (1, 2, n)


def _knocked_out(
    test: SequentialTest, subsets: Sequence[tuple[Head, ...]], pairs: Sequence[tuple[Circuit, Circuit]], n: int
) -> list[Knockout]:
    """Ablate subsets of heads in the circuit and in the model, on ``n`` examples, or on all if there are fewer."""
    losses = iter(test.measure([circuit for pair in pairs for circuit in pair], n))
    return [
        Knockout(subset, next(losses), next(losses), test.difference(*pair))
        for subset, pair in zip(subsets, pairs, strict=True)
    ]

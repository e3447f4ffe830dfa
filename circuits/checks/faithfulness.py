"""Faithfulness and completeness in the sense of Wang et al. 2022 (*Interpretability in the Wild*, section 4).

There a circuit is a set of heads, here those with a path, and all others whose pattern depends on the example. They
compute their own attention; what is ablated is all the others:

    faithful    the circuit's heads alone do what the model does: all others are ablated, and the loss stays low
    complete    nothing outside does the circuit's work: whichever of its heads are ablated, the circuit (all others
                ablated too) and the model come to the same loss

To ablate a head here is to replace its attention pattern: by its average over examples (``mean``, the field's
standard, which judges), or by ``uniform`` or ``identity`` attention, which stand beside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

from circuits.circuit import Circuit, Head
from circuits.losses.loss import SURE, Loss
from circuits.losses.sequential_test import ENOUGH, SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import Identity, Mechanism, Uniform

ALL_SUBSETS = 5  # heads of which all subsets are taken out; of more heads each, every two and all
STANDARD = "mean"  # the ablation that the verdicts are about


@dataclass(frozen=True)
class Ablated:
    """What one kind of ablation does.

    Attributes:
        ablation: ``mean``, ``uniform`` or ``identity``.
        circuit: the loss with all heads outside the circuit ablated.
        outside: the loss with the circuit's heads ablated and all others intact.
        nothing: the loss with all heads ablated.
    """

    ablation: str
    circuit: Loss
    outside: Loss
    nothing: Loss

    def recovered(self, unablated: Loss) -> float | None:
        """Which share of what ablating all heads costs the circuit's heads bring back: 1 is all of it.

        None where it costs nothing.
        """
        lost = self.nothing.mean - unablated.mean
        return (self.nothing.mean - self.circuit.mean) / lost if lost > 0 else None


@dataclass(frozen=True)
class Knockout:
    """Heads of the circuit ablated by their averages, in the circuit and in the model.

    Attributes:
        heads: which.
        circuit: the loss with these and all heads outside the circuit ablated.
        model: the loss with these ablated and all others intact.
        difference: of the two, on the same examples.
    """

    heads: tuple[Head, ...]
    circuit: Loss
    model: Loss
    difference: Loss

    def apart(self, threshold: float) -> bool:
        """Whether the two losses differ by the threshold or more, for sure."""
        return abs(self.difference.mean) - SURE * self.difference.standard_error >= threshold

    def alike(self, threshold: float) -> bool:
        """Whether they differ by less than the threshold, for sure."""
        return abs(self.difference.mean) + SURE * self.difference.standard_error < threshold


@dataclass(frozen=True)
class Faithfulness:
    """How a circuit's heads do without the others.

    Attributes:
        heads: those of the circuit: with a path, or with a pattern that depends on the example.
        by_ablation: what each kind of ablation does, ``mean`` first.
        knockouts: subsets of the heads taken out of circuit and model, those first that differ the most.
    """

    heads: tuple[Head, ...]
    by_ablation: tuple[Ablated, ...]
    knockouts: tuple[Knockout, ...]

    @property
    def standard(self) -> Ablated:
        """The ablation that the verdicts are about."""
        return next(ablated for ablated in self.by_ablation if ablated.ablation == STANDARD)

    def to_json(self, unablated: Loss) -> dict[str, Any]:
        """As plain numbers; docs/reports.md says what each key holds."""
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
    """Measure a circuit's heads without the others: with mean ablation on all examples of the test.

    The other ablations are measured on ``ENOUGH``, and subsets on as many as tell whether they differ.

    Args:
        test: of the model, on fresh examples.
        circuit: its heads that do not know positions alone are left to attend by themselves.
        means: every head's average pattern, of examples that the test does not have.
    """
    kinds: dict[str, dict[Head, Mechanism]] = {
        "mean": {**means},
        "uniform": dict.fromkeys(means, Uniform()),
        "identity": dict.fromkeys(means, Identity()),
    }
    few = test.examples.take(slice(0, ENOUGH))
    looking = circuit.content_heads(few.roles, few.inputs.shape[1])
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


def n_subsets(n: int) -> int:
    """How many subsets of so many heads are taken out."""
    return sum(comb(n, size) for size in _sizes(n))


def _sizes(n: int) -> Sequence[int]:
    return range(1, n + 1) if n <= ALL_SUBSETS else (1, 2, n)


def _knocked_out(
    test: SequentialTest, subsets: Sequence[tuple[Head, ...]], pairs: Sequence[tuple[Circuit, Circuit]], n: int
) -> list[Knockout]:
    """Subsets of heads ablated in the circuit and in the model, on so many examples or all there are."""
    losses = iter(test.measure([circuit for pair in pairs for circuit in pair], n))
    return [
        Knockout(subset, next(losses), next(losses), test.difference(*pair))
        for subset, pair in zip(subsets, pairs, strict=True)
    ]

"""Faithfulness as in Wang et al. 2022 (*Interpretability in the Wild*, section 4): are the circuit's heads enough?

The circuit's heads are all that are not idle. They stay intact and compute their own attention; the outputs of all
others are ablated. Both ablations of the field must leave the loss low: ``mean``, a head's average output by position
(Wang et al.), and ``resample``, its output on another example (Chan et al. 2022).

Two nulls show what such a result is worth: as many random heads, and all heads at their average patterns.
"""

import math
import random

from circuits.checks.experiment import Experiment, verdict
from circuits.circuit import Circuit, Head
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms.mechanism import Idle, Intact, Mechanism, Resample
from circuits.results import Result, Verdict
from circuits.settings import current

ABLATIONS: dict[str, Mechanism] = {"mean": Idle(), "resample": Resample()}


class Faithfulness(Result):
    """The losses of a circuit's heads without the others.

    Attributes:
        heads: the circuit's heads: all that are not idle.
        ablations: the loss with all other heads ablated, by kind of ablation; ``resample`` is left out if the examples
            have no counterfactual inputs.
        verdicts: whether it is low, by kind.
        random_heads: the loss with as many random heads intact and all others ablated (``mean``), lowest first: other
            sets than the circuit's heads, each once; empty if there is none.
        patterns: the loss with the heads that look at content intact, and all others at their average pattern, which
            leaves a positional head its work.
        positions: the loss with all heads at their average patterns: what positions alone solve.
        named: the number of heads that are named intact, and count among those that look at content.
    """

    heads: tuple[Head, ...]
    ablations: dict[str, DecidedLoss]
    verdicts: tuple[Verdict, ...]
    random_heads: tuple[DecidedLoss, ...]
    patterns: DecidedLoss
    positions: DecidedLoss
    named: int = 0

    @property
    def notes(self) -> tuple[str, ...]:
        """What the nulls and the average patterns say, beside the verdict."""
        low = sum(one.decision != "above" for one in self.random_heads)
        at_random = f"Of {len(self.random_heads)} random sets of {len(self.heads)} heads, {low} are low or undecided"
        said = {
            "below": "No other heads need content than those that look",
            "above": "Averages by position do not do for all heads that do not look, idle ones among them",
            "undecided": "Undecided whether other heads need content than those that look",
        }[self.patterns.decision]
        said += f" ({self.named} of these are named intact)" if self.named else ""
        alone = f"Positions alone solve this task: with all heads at their average patterns {self.positions.loss}."
        return (
            *([f"{at_random}; the best has the loss {self.random_heads[0].loss}."] if self.random_heads else ()),
            f"{said}: with their average patterns, which depend on positions only, the loss is {self.patterns.loss}.",
            *([alone] if self.positions.decision == "below" else ()),
        )


def faithfulness(experiment: Experiment) -> Faithfulness:
    """Measure a circuit's heads without the others, on all examples."""
    test, outside = experiment.test, experiment.outside
    kinds = {kind: one for kind, one in ABLATIONS.items() if experiment.has_others or kind != "resample"}
    n = experiment.n_examples
    ablations = test.test({kind: Circuit(dict.fromkeys(outside, one)) for kind, one in kinds.items()}, min_examples=n)
    means = Circuit(experiment.averages.patterns)
    ways = {"patterns": means.without_heads(experiment.looking), "positions": means}
    fixed = test.test(ways, min_examples=current().enough)
    drawn, rng = dict[frozenset[Head], None](), random.Random(experiment.seed)
    others = math.comb(len(experiment.all_heads), len(outside)) - 1 if experiment.heads else 0
    while len(drawn) < min(current().random_sets, others):
        drawn |= {frozenset(rng.sample(experiment.all_heads, len(outside))): None}
        drawn.pop(frozenset(outside), None)  # the circuit's own
    null = test.test({heads: experiment.without(*heads) for heads in drawn})
    return Faithfulness(
        heads=experiment.heads,
        ablations=ablations,
        verdicts=tuple(_verdict(experiment, kind, ablations.get(kind)) for kind in ABLATIONS),
        named=sum(mechanism == Intact() for mechanism in experiment.circuit.heads.values()),
        random_heads=tuple(sorted(null.values(), key=lambda one: one.loss.mean)),
        **fixed,
    )


def _verdict(experiment: Experiment, kind: str, one: DecidedLoss | None) -> Verdict:
    name = f"faithful ({kind})"
    if not experiment.outside:
        return verdict(name, f"The circuit has all {len(experiment.heads)} heads, so there is no other to ablate.")
    if one is None:
        why = "Not tested: the examples have no counterfactual inputs: "
        return verdict(name, "", undecided={why: ["Examples.counterfactual"]})
    what = f"With the circuit's heads ({len(experiment.heads)}) intact and all others ablated the loss"
    return experiment.low(name, what, one)

"""Faithfulness and completeness as in Wang et al. 2022 (*Interpretability in the Wild*, section 4).

There a circuit is a set of heads. Here these are the heads with a path, and all heads whose pattern depends on the
example. They stay intact, and all other heads are ablated:

    faithful    the circuit's heads alone do what the model does: with all others ablated the loss stays low
    complete    no other heads do the circuit's work: after a knockout of any of its heads, the circuit (all others
                ablated, too) and the model have the same loss

A head is ablated by replacing its attention pattern. The verdicts use its average over examples (``mean``).
``uniform`` and ``identity`` attention, and, if the examples have counterfactual inputs, the head's attention on these
(``resample``), are measured for comparison.
"""

from itertools import combinations

from circuits.checks.experiment import MORE, Experiment, is_low, listed, verdict
from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import Identity, Mechanism, Resample, Uniform
from circuits.results import Result, Verdict
from circuits.settings import current

STANDARD = "mean"  # the ablation that the verdicts use


class Ablated(Result):
    """The losses under one kind of ablation.

    Attributes:
        intact_circuit: the loss with all heads outside the circuit ablated.
        intact_others: the loss with the circuit's heads ablated and all others intact.
        intact_none: the loss with all heads ablated.
    """

    intact_circuit: Loss
    intact_others: Loss
    intact_none: Loss

    def recovered(self, unablated: Loss) -> float | None:
        """Return the share of the loss increase from ablating all heads that the circuit's heads recover.

        It is 1 if the circuit's heads alone do as well as the model, and None if ablating all heads costs nothing.
        """
        lost = self.intact_none.mean - unablated.mean
        return (self.intact_none.mean - self.intact_circuit.mean) / lost if lost > 0 else None


class Knockout(Result):
    """Heads of the circuit replaced with their averages, in the circuit and in the model.

    Attributes:
        heads: the heads that are knocked out.
        of_circuit: the loss with these heads and all heads outside the circuit ablated.
        of_model: the loss with these heads ablated and all others intact.
        difference: the difference of the two losses, on the same examples.
    """

    heads: tuple[Head, ...]
    of_circuit: Loss
    of_model: Loss
    difference: Loss

    def apart(self, threshold: float) -> bool:
        """Whether the two losses differ by the threshold or more, with a margin of three standard errors."""
        return abs(self.difference.mean) - current().sure * self.difference.standard_error >= threshold

    def alike(self, threshold: float) -> bool:
        """Whether the two losses differ by less than the threshold, with a margin of three standard errors."""
        return abs(self.difference.mean) + current().sure * self.difference.standard_error < threshold

    def __str__(self) -> str:
        return f"without {listed(self.heads, ', ')} (circuit {self.of_circuit}, model {self.of_model})"


class Faithfulness(Result):
    """The losses of a circuit's heads without the others.

    Attributes:
        heads: the heads of the circuit: those with a path, or with a pattern that depends on the example.
        ablations: the losses by kind of ablation, ``mean`` first.
        knockouts: subsets of the heads knocked out in circuit and model, largest difference first.
    """

    heads: tuple[Head, ...]
    ablations: dict[str, Ablated]
    knockouts: tuple[Knockout, ...]

    def faithful(self, n_heads: int, threshold: float) -> Verdict:
        """Return whether the circuit's heads are enough, of a model with ``n_heads`` heads."""
        if len(self.heads) == n_heads:
            return verdict("faithful", f"The circuit has all {n_heads} heads, so there is no other head to ablate.")
        what = f"With the circuit's heads ({len(self.heads)}) intact and all others ablated ({STANDARD}) the loss"
        low = is_low("faithful", what, self.ablations[STANDARD].intact_circuit, threshold)
        others = [f"{kind} {one.intact_circuit}" for kind, one in self.ablations.items() if kind != STANDARD]
        return low.model_copy(update={"sentence": f"{low.sentence} Other ablations: {listed(others, ', ')}."})

    def complete(self, threshold: float) -> Verdict:
        """Return whether circuit and model are alike after every knockout."""
        if not self.knockouts:
            sentence = "The circuit has no head with a path, so none can be knocked out."
            return Verdict(name="complete", decision="fails", sentence=sentence)
        apart = [out for out in self.knockouts if out.apart(threshold)]
        near = [out for out in self.knockouts if not out.apart(threshold) and not out.alike(threshold)]
        n = f"{len(apart) or 'none'} of {len(self.knockouts)}"
        said = f"In {n} knockouts, circuit and model clearly differ in loss by {threshold:g} or more."
        if apart and all(out.difference.mean > 0 for out in apart):
            said += " Heads outside the circuit do part of its work."
        if not apart:
            said += f" They differ most {self.knockouts[0]}."
        undecided = {} if apart else {f"{MORE} Undecided: ": near}
        return verdict("complete", said, {"They differ ": apart}, undecided)


def faithfulness(experiment: Experiment) -> Faithfulness:
    """Measure a circuit's heads without the others.

    Mean ablation is measured on all examples, other ablations on ``enough`` (settings.py). A knockout is measured on as
    many as it takes to decide whether circuit and model differ.
    """
    test, means, enough = experiment.test, experiment.means, current().enough
    kinds: dict[str, dict[Head, Mechanism]] = {
        STANDARD: {**means},
        "uniform": dict.fromkeys(means, Uniform()),
        "identity": dict.fromkeys(means, Identity()),
    }
    few = test.examples.take(slice(0, enough))
    if few.counterfactual is not None:
        kinds["resample"] = dict.fromkeys(means, Resample())
    varying = (head for head, mechanism in experiment.circuit.heads.items() if mechanism.varies)
    heads = tuple(sorted({*experiment.circuit.heads_with_paths, *varying}))
    outside = [head for head in means if head not in heads]
    intact = {"intact_circuit": heads, "intact_others": outside, "intact_none": ()}
    ways = {(kind, what): Circuit(kinds[kind]).without_heads(intact[what]) for kind in kinds for what in intact}
    losses = dict(zip(ways, test.measure(ways.values(), enough), strict=True))
    (losses[STANDARD, "intact_circuit"],) = test.measure([ways[STANDARD, "intact_circuit"]])
    ablations = {kind: Ablated(**{what: losses[kind, what] for what in intact}) for kind in kinds}
    n_heads = len(heads)
    sizes = range(1, n_heads + 1) if n_heads <= current().all_subsets else (1, 2, n_heads)
    subsets = [subset for size in sizes for subset in combinations(heads, size)]
    knockouts: dict[tuple[Head, ...], Knockout] = {}
    for n in test.rounds[1:] or test.rounds:
        decided = {out.heads for out in knockouts.values() if out.apart(test.threshold) or out.alike(test.threshold)}
        pairs = {
            subset: (
                Circuit(means).without_heads([head for head in heads if head not in subset]),
                Circuit({head: means[head] for head in subset}),
            )
            for subset in subsets
            if subset not in decided
        }
        measured = iter(test.measure([circuit for pair in pairs.values() for circuit in pair], n))
        for subset, pair in pairs.items():
            both = {"of_circuit": next(measured), "of_model": next(measured), "difference": test.difference(*pair)}
            knockouts[subset] = Knockout(heads=subset, **both)
    widest_first = sorted(knockouts.values(), key=lambda out: -abs(out.difference.mean))
    return Faithfulness(heads=heads, ablations=ablations, knockouts=tuple(widest_first))

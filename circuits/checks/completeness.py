"""Completeness as in Wang et al. 2022 (section 4): do no other heads do the circuit's work?

After a knockout of any of its heads, the circuit (all others ablated, too) and the model must have the same loss, or
both be as bad as without any head: beyond that there is nothing to compare. A head is knocked out by its average
output, whether it looks at content or attends by position. Every head is, every two heads, and random sets of them. Of
a model with many heads, those that look at content are, one at a time and in random sets.
"""

import random
from itertools import combinations

from circuits.checks.experiment import Experiment, listed, verdict
from circuits.circuit import Head
from circuits.losses.loss import Compared, Loss, any_above
from circuits.results import Number, Result, Verdict
from circuits.settings import current
from circuits.utils.progress import Progress


class Knockout(Result):
    """Heads of the circuit made idle, in the circuit and in the model.

    Attributes:
        heads: the heads that are knocked out.
        of_circuit: the loss with these heads and all heads outside the circuit idle.
        of_model: the loss with these heads idle and all others intact.
        difference: the first minus the second on the same examples, as a share of the range.
        decision: whether the size of the difference is below the threshold, or both losses as high as without heads.
    """

    heads: tuple[Head, ...]
    of_circuit: Loss
    of_model: Loss
    difference: Number
    decision: Compared

    def __str__(self) -> str:
        return f"without {listed(self.heads, ', ')} (circuit {self.of_circuit}, model {self.of_model})"


def completeness(experiment: Experiment, progress: Progress = lambda share: None) -> tuple[Knockout, ...]:
    """Knock heads of the circuit out; largest difference first.

    Single heads are knocked out on all examples, several on as many as the decision needs.
    """
    test, rng, many = experiment.test, random.Random(experiment.seed), experiment.many
    heads = experiment.looking if many else experiment.heads
    if not experiment.outside or not heads:
        return ()
    sets = [subset for size in ((1,) if many else (1, 2)) for subset in combinations(heads, size)]
    for _ in range(current().random_sets if len(heads) > 2 else 0):
        sets.append(tuple(sorted(rng.sample(heads, rng.randint(3, len(heads))))))
    sets = [*dict.fromkeys(sets)]
    of_circuit = {subset: experiment.without(*experiment.outside, *subset) for subset in sets}
    of_model = {subset: experiment.without(*subset) for subset in sets}
    singles = [subset for subset in sets if len(subset) == 1]
    if not many:
        test.measure([ways[subset] for subset in singles for ways in (of_circuit, of_model)], progress=progress)
    most = current().enough if many else None
    higher = test.test(of_circuit, than=of_model, max_examples=most)
    lower = test.test(of_model, than=of_circuit, max_examples=most)
    broken = {
        subset for subset in sets if experiment.broken(of_circuit[subset]) and experiment.broken(of_model[subset])
    }
    knockouts = [
        Knockout(
            heads=subset,
            of_circuit=higher[subset].loss,
            of_model=lower[subset].loss,
            difference=higher[subset].excess,
            decision="below" if subset in broken else any_above(one[subset].decision for one in (higher, lower)),
        )
        for subset in sets
    ]
    return tuple(sorted(knockouts, key=lambda out: -abs(out.difference)))


def complete(experiment: Experiment, knockouts: tuple[Knockout, ...]) -> Verdict:
    """Return whether circuit and model are alike after every knockout."""
    if not experiment.heads:
        return verdict(
            "complete", "", {"All heads are idle, so none can be knocked out: ": ["the circuit does nothing"]}
        )
    if not experiment.outside:
        return verdict("complete", f"The circuit has all {len(experiment.heads)} heads, so no other can do their work.")
    apart = [out for out in knockouts if out.decision == "above"]
    near = [out for out in knockouts if out.decision == "undecided"]
    if not knockouts:
        nothing = {"No head looks at content, and none of so many was knocked out: ": ["nothing was tested"]}
        return verdict("complete", "", undecided=nothing)
    n = f"{len(apart) or 'none'} of {len(knockouts)}"
    said = f"In {n} knockouts, circuit and model differ in loss by {experiment.threshold:.3g} of the range or more."
    if apart and all(out.difference > 0 for out in apart):
        said += " Heads outside the circuit do part of its work."
    if not apart:
        said += f" They differ most {knockouts[0]}."
    return verdict("complete", said, {"They differ ": apart}, {} if apart else {f"{experiment.more} Undecided: ": near})

"""Steps 3 and 4 of Appendix E: each head alone is replaced with its mechanism and simpler ones; none is left out."""

from collections.abc import Sequence

from circuits.checks.experiment import Experiment, verdict
from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import SIMPLE
from circuits.results import Decision, Result, Verdict


class HeadAlone(Result):
    """Step 3 for one head: the loss with only this head replaced, by mechanism.

    Attributes:
        head: the head.
        hypothesis: the name of its mechanism in the circuit.
        losses: the loss under ``uniform``, ``identity``, ``previous`` and the head's hypothesis.
        simplest: the simplest mechanism with a loss below the threshold by more than three standard errors, if any.
        decision: ``holds`` if the hypothesis keeps the loss below the threshold; ``fails`` if it does not, but another
            mechanism does; ``undecided`` if no mechanism does, or the loss is within three standard errors of the
            threshold. If no mechanism does, intact heads above read more from this head than any mechanism gives. Only
            the combined ablation, which replaces those heads, too, can then test it.
    """

    head: Head
    hypothesis: str
    losses: dict[str, Loss]
    simplest: str | None
    decision: Decision


def each_head_alone(experiment: Experiment) -> tuple[HeadAlone, ...]:
    """Run step 3; a loss far from the threshold is decided on fewer examples."""
    heads = experiment.circuit.heads
    mechanisms = {head: {**SIMPLE, mechanism.name: mechanism} for head, mechanism in heads.items()}
    decided = experiment.test.test(
        {(head, name): Circuit({head: one}) for head, tried in mechanisms.items() for name, one in tried.items()}
    )
    results = []
    for head, mechanism in heads.items():
        tried = {name: decided[head, name] for name in mechanisms[head]}
        simplest = next((name for name, one in tried.items() if one.decision == "below"), None)
        hypothesis = tried[mechanism.name].decision
        wrong = hypothesis == "above" and simplest
        decision: Decision = "holds" if hypothesis == "below" else "fails" if wrong else "undecided"
        losses = {name: one.loss for name, one in tried.items()}
        results.append(
            HeadAlone(head=head, hypothesis=mechanism.name, losses=losses, simplest=simplest, decision=decision)
        )
    return tuple(results)


def step_3(heads: Sequence[HeadAlone], threshold: float) -> Verdict:
    """Return the verdict on all heads alone."""
    low = sum(one.decision == "holds" for one in heads)
    said = f"Replaced alone, {low} of {len(heads)} named heads keep the loss below the threshold {threshold:g}."
    wrong = [
        f"{one.head} ({one.simplest} is enough, {one.hypothesis} is not)" for one in heads if one.decision == "fails"
    ]
    none = [one.head for one in heads if one.decision == "undecided" and one.simplest is None]
    near = [one.head for one in heads if one.decision == "undecided" and one.simplest]
    undecided = {
        "No mechanism does so for these, which only step 5 can test: ": none,
        "More examples could decide ": near,
    }
    return verdict("step 3", said, {"The hypothesis is wrong for ": wrong}, undecided)


def step_4(unnamed: Sequence[Head]) -> Verdict:
    """Return whether every head of the model has a mechanism."""
    said = "" if unnamed else "Every head of the model has a mechanism."
    return verdict("step 4", said, {f"{len(unnamed)} heads of the model have no mechanism: ": unnamed})

"""Step 3 of Appendix E: each head alone is replaced with its hypothesised mechanism, and with simpler mechanisms."""

from dataclasses import dataclass
from typing import Literal

from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import SIMPLE

Alone = Literal["holds", "fails", "undetermined"]


@dataclass(frozen=True)
class HeadResult:
    """Step 3 for one head: the loss with only this head replaced, by mechanism.

    Attributes:
        head: the head.
        hypothesis: the name of its mechanism in the circuit.
        losses: the loss under ``uniform``, ``identity``, ``previous`` and the head's hypothesis.
        simplest: the simplest mechanism with a loss below the threshold by more than three standard errors, if any.
        alone: ``holds`` if the hypothesis keeps the loss below the threshold; ``fails`` if it does not, but another
            mechanism does; ``undetermined`` if no mechanism does, or the loss is within three standard errors of the
            threshold. If no mechanism does, intact heads above read more from this head than any mechanism gives. Only
            the combined ablation, which replaces those heads, too, can then test it.
    """

    head: Head
    hypothesis: str
    losses: dict[str, Loss]
    simplest: str | None
    alone: Alone

    @property
    def passed(self) -> bool:
        """Whether the hypothesis for this head alone does not fail."""
        return self.alone != "fails"


def each_head_alone(test: SequentialTest, circuit: Circuit) -> tuple[HeadResult, ...]:
    """Run step 3; a loss far from the threshold is decided on fewer examples."""
    mechanisms = {head: {**SIMPLE, own.name: own} for head, own in circuit.heads.items()}
    alone = {(head, name): Circuit({head: own}) for head, tried in mechanisms.items() for name, own in tried.items()}
    decided = test.test(alone)
    results = []
    for head, hypothesis in circuit.heads.items():
        tried = {name: decided[head, name] for name in mechanisms[head]}
        simplest = next((name for name, one in tried.items() if one.decision == "below"), None)
        outcome: Alone = "undetermined"
        if tried[hypothesis.name].decision == "below":
            outcome = "holds"
        elif tried[hypothesis.name].decision == "above" and simplest:
            outcome = "fails"
        losses = {name: one.loss for name, one in tried.items()}
        results.append(HeadResult(head, hypothesis.name, losses, simplest, outcome))
    return tuple(results)

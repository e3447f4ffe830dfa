"""Step 3 of Appendix E: each head alone, replaced by its hypothesised mechanism and by simpler ones."""

from dataclasses import dataclass
from typing import Literal

from circuits.circuit import Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import SIMPLE

Alone = Literal["holds", "fails", "undetermined"]


@dataclass(frozen=True)
class HeadResult:
    """Step 3 for one head: its loss when it alone is replaced, by mechanism.

    Attributes:
        head: the head.
        hypothesis: name of its mechanism in the circuit.
        losses: under ``uniform``, ``identity``, ``previous`` and, for a one-hot hypothesis, ``one_hot``.
        simplest: the simplest mechanism below the threshold, if any; by three standard errors at least.
        alone: ``holds`` if the hypothesis stays below the threshold; ``fails`` if it does not and another mechanism
            does; ``undetermined`` if none does, or chance could decide it. Where none does, the heads above read more
            of this one than any mechanism leaves. Only the combined ablation, which replaces those heads too, can
            judge it.
    """

    head: Head
    hypothesis: str
    losses: dict[str, Loss]
    simplest: str | None
    alone: Alone

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the hypothesis for this head alone."""
        return self.alone != "fails"


def each_head_alone(test: SequentialTest, circuit: Circuit) -> tuple[HeadResult, ...]:
    """Step 3; a loss far from the threshold is decided on fewer examples."""
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

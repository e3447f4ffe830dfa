"""A loss over examples, with its spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.utils.lazy import torch

SURE = 3.0  # standard errors: a difference that chance does not make


@dataclass(frozen=True)
class Loss:
    """A loss over examples.

    Attributes:
        mean: over examples and loss components.
        standard_error: of that mean, from the spread over examples.
        components: the loss of each component, by name.
        n_examples: on how many it was measured.
    """

    mean: float
    standard_error: float
    components: dict[str, float]
    n_examples: int

    @classmethod
    def of(cls, losses: Float[torch.Tensor, "example component"], names: tuple[str, ...]) -> Loss:
        """Summarise the loss components of every example."""
        each = losses.double().mean(dim=1)
        spread = each.std().item() if len(each) > 1 else float("nan")
        components = dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))
        return cls(each.mean().item(), spread / len(each) ** 0.5, components, len(each))

    def near(self, threshold: float) -> bool:
        """Whether chance could decide on which side of the threshold it lies."""
        return abs(self.mean - threshold) <= SURE * self.standard_error

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"

    def to_json(self) -> dict[str, Any]:
        """``mean``, ``standard_error``, ``components`` and ``examples``."""
        numbers = {"mean": self.mean, "standard_error": self.standard_error}
        return {**numbers, "components": self.components, "examples": self.n_examples}


def allowed_loss(unablated: Loss) -> float:
    """How high the loss may be for a circuit to explain all that a model does: twice the unablated loss, plus 0.005."""
    return 2 * unablated.mean + 0.005


def strict_threshold(unablated: Loss, combined: Loss, threshold: float) -> float:
    """What a loss without a path must exceed: where a circuit explains all that the model does, no more than that.

    Args:
        unablated: the model's own loss.
        combined: that with all heads replaced by the circuit.
        threshold: a loss below it counts as low; the paper takes 0.05.
    """
    allowed = allowed_loss(unablated)
    return min(threshold, allowed) if combined.mean < allowed else threshold


def check_threshold(threshold: float) -> None:
    """Refuse what cannot be the loss below which a loss counts as low.

    Raises:
        BadInput: it is no number above 0.
    """
    if not 0 < threshold < float("inf"):
        raise BadInput(f"the threshold is {threshold}; expected a number above 0")

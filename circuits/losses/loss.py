"""Losses averaged over examples, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from circuits.errors import real
from circuits.results import Number
from circuits.utils.lazy import torch

SURE = 3.0  # standard errors; a larger difference is taken as real


@dataclass(frozen=True)
class Loss:
    """A loss averaged over examples.

    Attributes:
        mean: the mean over examples and loss components.
        standard_error: the standard error of the mean, from the spread over examples.
        components: the mean of each loss component, by name.
        n_examples: the number of examples.
    """

    mean: Number
    standard_error: Number
    components: dict[str, Number]
    n_examples: int

    @classmethod
    def of(cls, losses: Float[torch.Tensor, "example component"], names: tuple[str, ...]) -> Loss:
        """Average the loss components of all examples."""
        each = losses.double().mean(dim=1)
        spread = each.std().item() if len(each) > 1 else float("nan")
        components = dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))
        return cls(each.mean().item(), spread / len(each) ** 0.5, components, len(each))

    def near(self, threshold: float) -> bool:
        """Whether the loss is within three standard errors of the threshold, so that the decision is open."""
        return abs(self.mean - threshold) <= SURE * self.standard_error

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"

    def to_json(self) -> dict[str, Any]:
        """Return ``mean``, ``standard_error``, ``components`` and ``examples``."""
        numbers = {"mean": self.mean, "standard_error": self.standard_error}
        return {**numbers, "components": self.components, "examples": self.n_examples}


def allowed_loss(unablated: Loss, threshold: float) -> float:
    """Return the highest loss of a circuit that explains all that the model does.

    It is twice the unablated loss plus a tenth of the threshold. A loss that is a share of what the model does may be
    slightly below 0, and then counts as 0.
    """
    return 2 * max(unablated.mean, 0.0) + threshold / 10


def strict_threshold(unablated: Loss, combined: Loss, threshold: float) -> float:
    """Return the strict threshold for single paths.

    If the circuit explains all that the model does, this is ``allowed_loss``, but at most the threshold. If it does
    not, this is the threshold.

    Args:
        unablated: the loss of the unablated model.
        combined: the loss with all heads of the circuit replaced.
        threshold: a loss below it counts as low; the paper uses 0.05.
    """
    allowed = allowed_loss(unablated, threshold)
    return min(threshold, allowed) if combined.mean < allowed else threshold


def check_threshold(threshold: float) -> None:
    """Check a threshold.

    Raises:
        BadInput: the threshold is not a number above 0.
    """
    real("the threshold", threshold, above=0.0)

"""Losses averaged over examples, with standard errors."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float

from circuits.errors import real
from circuits.losses.mean import Mean
from circuits.results import Number
from circuits.settings import current
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Loss(Mean):
    """A loss averaged over examples and loss components.

    Attributes:
        components: the mean of each loss component, by name.
    """

    components: dict[str, Number] = field(default_factory=dict)

    @classmethod
    def of(cls, losses: Float[torch.Tensor, "example component"], names: tuple[str, ...]) -> Loss:  # type: ignore[override]
        """Average the loss components of all examples."""
        mean, components = Mean.of(losses.double().mean(dim=1)), losses.double().mean(dim=0).tolist()
        return cls(mean.mean, mean.standard_error, mean.n_examples, dict(zip(names, components, strict=True)))

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"


def allowed_loss(unablated: Loss, threshold: float) -> float:
    """Return the highest loss of a circuit that explains all that the model does.

    It is twice the unablated loss plus a tenth of the threshold. A loss that is a share of what the model does may be
    slightly below 0, and then counts as 0.
    """
    return current().own_losses * max(unablated.mean, 0.0) + current().spare * threshold


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

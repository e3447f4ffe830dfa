"""A loss over examples, with its spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.lazy import torch

SURE = 3.0  # standard errors: a difference that chance does not make


@dataclass(frozen=True)
class Loss:
    """A loss over examples.

    Attributes:
        mean: over examples and parts.
        standard_error: of that mean, from the spread over examples.
        parts: the partial losses, by name.
        n_examples: on how many it was measured.
    """

    mean: float
    standard_error: float
    parts: dict[str, float]
    n_examples: int

    @classmethod
    def of(cls, losses: Float[torch.Tensor, "example part"], names: tuple[str, ...]) -> Loss:
        """Summarise the partial losses of every example."""
        each = losses.double().mean(dim=1)
        spread = each.std().item() if len(each) > 1 else float("nan")
        parts = dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))
        return cls(each.mean().item(), spread / len(each) ** 0.5, parts, len(each))

    def near(self, threshold: float) -> bool:
        """Whether chance could decide on which side of the threshold it lies."""
        return abs(self.mean - threshold) <= SURE * self.standard_error

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"

    def to_json(self) -> dict[str, Any]:
        """``mean``, ``standard_error``, ``parts`` and ``examples``."""
        numbers = {"mean": self.mean, "standard_error": self.standard_error}
        return {**numbers, "parts": self.parts, "examples": self.n_examples}


def explained_below(full: Loss) -> float:
    """How high the loss may be for a circuit to explain all that a model does: twice the model's own, plus 0.005."""
    return 2 * full.mean + 0.005


def strict_level(full: Loss, combined: Loss, threshold: float) -> float:
    """What a loss without a path must exceed: where a circuit explains all that the model does, no more than that.

    Args:
        full: the model's own loss.
        combined: that with all heads replaced by the circuit.
        threshold: a loss below it counts as low; the paper takes 0.05.
    """
    allowed = explained_below(full)
    return min(threshold, allowed) if combined.mean < allowed else threshold


def check_threshold(threshold: float) -> None:
    """Refuse what cannot be the loss below which a loss counts as low.

    Raises:
        BadInput: it is no number above 0.
    """
    if not 0 < threshold < float("inf"):
        raise BadInput(f"the threshold is {threshold}; expected a number above 0")

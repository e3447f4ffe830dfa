"""The report on MLPs: losses by layer and role, and sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from circuits.losses.loss import Loss
from circuits.utils.lazy import pandas as pd

INSTEAD = ("mean", "linear")  # what stands in the place of an MLP


@dataclass(frozen=True)
class MLPLoss:
    """The loss with an MLP replaced.

    Attributes:
        layer: its layer; None for the MLPs of all layers at once.
        role: the role at whose positions it is replaced; None for all positions.
        instead: ``mean`` or ``linear``.
        loss: the loss.
        added: the loss minus the unablated one, on the same examples.
    """

    layer: int | None
    role: str | None
    instead: str
    loss: Loss
    added: Loss

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers."""
        place = {"layer": self.layer, "role": self.role, "instead": self.instead}
        return {**place, "loss": self.loss.to_json(), "added": self.added.to_json()}


@dataclass(frozen=True)
class MLPReport:
    """Where MLPs are needed.

    Attributes:
        unablated: the loss of the unablated model.
        losses: the losses with MLPs replaced.
        threshold: a loss below it counts as low.
    """

    unablated: Loss
    losses: tuple[MLPLoss, ...]
    threshold: float

    def loss(self, layer: int | None, role: str | None, instead: str) -> Loss:
        """Return one loss; None stands for all layers or for all positions."""
        return next(own.loss for own in self.losses if (own.layer, own.role, own.instead) == (layer, role, instead))

    @property
    def needed(self) -> tuple[tuple[int, str], ...]:
        """The layers and roles at which the mean in the place of the MLP raises the loss to the threshold."""
        return tuple(
            (own.layer, own.role)
            for own in self.losses
            if own.layer is not None
            and own.role is not None
            and own.instead == "mean"
            and own.loss.mean >= self.threshold
        )

    def table(self) -> pd.DataFrame:
        """Return one row for every layer, role and replacement; ``all`` stands for all layers, or for all positions."""
        return pd.DataFrame(
            {
                "layer": "all" if own.layer is None else own.layer,
                "role": own.role or "all",
                "instead": own.instead,
                "loss": own.loss.mean,
                "standard_error": own.loss.standard_error,
                "added": own.added.mean,
                "added_standard_error": own.added.standard_error,
                **own.loss.components,
            }
            for own in self.losses
        )

    def sentences(self) -> tuple[str, ...]:
        """Return the findings in words."""
        said, quiet = [f"The loss of the model is {self.unablated}."], []
        for layer in dict.fromkeys(own.layer for own in self.losses if own.layer is not None):
            roles = [role for where, role in self.needed if where == layer]
            nonlinear = [role for role in roles if self.loss(layer, role, "linear").mean >= self.threshold]
            if roles:
                losses = (f"{role} ({self.loss(layer, role, 'mean').mean:.2f})" for role in roles)
                instead = "a linear map does as well" if len(nonlinear) < len(roles) else "no linear map does as well"
                said.append(
                    f"Layer {layer}: the MLP is needed at {', '.join(losses)}; {instead}{_except(nonlinear, roles)}."
                )
            elif (everywhere := self.loss(layer, None, "mean").mean) >= self.threshold:
                said.append(f"Layer {layer}: the MLP is needed at all roles together only ({everywhere:.2f}).")
            else:
                quiet.append(str(layer))
        if quiet:
            said.append(f"Layer{'s' * (len(quiet) > 1)} {', '.join(quiet)}: the MLP is needed at no role.")
        mean, linear = (self.loss(None, None, instead) for instead in INSTEAD)
        said.append(f"With all MLPs replaced at once the loss is {mean} (means) and {linear} (linear maps).")
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "unablated": self.unablated.to_json(),
            "threshold": self.threshold,
            "losses": [own.to_json() for own in self.losses],
            "sentences": [*self.sentences()],
        }


def _except(nonlinear: Sequence[str], roles: Sequence[str]) -> str:
    return f" except at {', '.join(nonlinear)}" if 0 < len(nonlinear) < len(roles) else ""

"""The report on MLPs: losses by layer and role, and sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        """The layers and roles at which the loss with the mean is above the threshold by three standard errors.

        There are none if the model's own loss is not clearly below it.
        """
        return tuple(place for place, loss in self._with_means() if self._above(loss) and self._below(self.unablated))

    @property
    def undecided(self) -> tuple[tuple[int, str], ...]:
        """The layers and roles at which the loss with the mean is within three standard errors of the threshold."""
        return tuple(place for place, loss in self._with_means() if loss.near(self.threshold))

    def _with_means(self) -> Iterator[tuple[tuple[int, str], Loss]]:
        for own in self.losses:
            if own.layer is not None and own.role is not None and own.instead == "mean":
                yield (own.layer, own.role), own.loss

    def _above(self, loss: Loss) -> bool:
        return loss.mean >= self.threshold and not loss.near(self.threshold)

    def _below(self, loss: Loss) -> bool:
        return loss.mean < self.threshold and not loss.near(self.threshold)

    def _listed(self, layer: int, roles: Sequence[str], instead: str) -> str:
        return ", ".join(f"{role} ({self.loss(layer, role, instead)})" for role in roles)

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
        mean, linear = (self.loss(None, None, instead) for instead in INSTEAD)
        together = f"With all MLPs replaced at once the loss is {mean} (means) and {linear} (linear maps)."
        if not self._below(self.unablated):
            unsolved = (
                f"It is not clearly below the threshold {self.threshold:g}: which MLPs are needed is not decided."
            )
            return (*said, unsolved, together)
        for layer in dict.fromkeys(own.layer for own in self.losses if own.layer is not None):
            roles, open_ = ([role for where, role in own if where == layer] for own in (self.needed, self.undecided))
            if roles:
                said.append(f"Layer {layer}: the MLP is needed at {self._listed(layer, roles, 'mean')}.")
                said += self._with_linear_maps(layer, roles)
            if open_:
                said.append(
                    f"Layer {layer}: it is undecided whether the MLP is needed at {self._listed(layer, open_, 'mean')}."
                )
            if not roles and not open_:
                everywhere = self.loss(layer, None, "mean")
                if self._below(everywhere):
                    quiet.append(str(layer))
                else:
                    is_ = "it is undecided whether the MLP is" if everywhere.near(self.threshold) else "the MLP is"
                    said.append(
                        f"Layer {layer}: {is_} needed at all positions together ({everywhere}), but at no role."
                    )
        if quiet:
            said.append(f"Layer{'s' * (len(quiet) > 1)} {', '.join(quiet)}: the MLP is needed at no role.")
        return (*said, together)

    def _with_linear_maps(self, layer: int, roles: Sequence[str]) -> Iterator[str]:
        """Say of every role that needs the MLP of a layer whether a linear map does as well."""
        loss = {role: self.loss(layer, role, "linear") for role in roles}
        outcomes = {
            "keeps the loss below the threshold at": [role for role in roles if self._below(loss[role])],
            "leaves the loss above the threshold at": [role for role in roles if self._above(loss[role])],
            "leaves it undecided at": [role for role in roles if loss[role].near(self.threshold)],
        }
        for outcome, there in outcomes.items():
            if there:
                yield f"Layer {layer}: the best linear map {outcome} {self._listed(layer, there, 'linear')}."

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "unablated": self.unablated.to_json(),
            "threshold": self.threshold,
            "losses": [own.to_json() for own in self.losses],
            "sentences": [*self.sentences()],
        }

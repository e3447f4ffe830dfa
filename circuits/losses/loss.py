"""Means and losses over examples with their standard errors, compared with thresholds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from jaxtyping import Float

from circuits.results import Number
from circuits.settings import current
from circuits.utils.lazy import torch

Compared = Literal["below", "above", "undecided"]


def any_above(sides: Iterable[Compared]) -> Compared:
    """Return ``above`` if one of some decisions is, ``below`` if all are, else ``undecided``."""
    seen = {*sides}
    return "above" if "above" in seen else "undecided" if "undecided" in seen else "below"


@dataclass(frozen=True)
class Mean:
    """A mean over examples.

    Attributes:
        mean: the mean; NaN without any example.
        standard_error: its standard error, from the spread over examples.
        n_examples: the number of examples.
    """

    mean: Number
    standard_error: Number
    n_examples: int

    @classmethod
    def of(cls, values: Float[torch.Tensor, " example"]) -> Mean:
        """Average one value for each example; examples with NaN have no value."""
        known = values[~values.isnan()].double()
        spread = known.std().item() if len(known) > 1 else float("nan")
        return Mean(known.mean().item(), spread / max(1, len(known)) ** 0.5, len(known))

    def compared(self, threshold: float) -> Compared:
        """Return on which side of a threshold the mean is, by more than three standard errors."""
        return "undecided" if self.near(threshold) else "below" if self.mean < threshold else "above"

    def near(self, threshold: float) -> bool:
        """Whether the mean is within three standard errors of a threshold; a single example is always too few."""
        return not abs(self.mean - threshold) > current().sure * self.standard_error

    @property
    def positive(self) -> bool:
        """Whether the mean is above zero by more than three standard errors."""
        return self.compared(0.0) == "above"

    def __str__(self) -> str:
        return f"{self.mean:.2f} ± {self.standard_error:.2f}"


@dataclass(frozen=True)
class Loss(Mean):
    """A loss averaged over examples and loss components.

    Attributes:
        components: the mean of each loss component, by name.
        measures: the mean of each further measure, by name (``Measured``, task.py).
    """

    components: dict[str, Number] = field(default_factory=dict)
    measures: dict[str, Number] = field(default_factory=dict)

    @classmethod
    def of(  # type: ignore[override]
        cls, losses: Float[torch.Tensor, "example number"], names: tuple[str, ...], measures: tuple[str, ...] = ()
    ) -> Loss:
        """Average the loss components of all examples, and the measures that stand beside them."""
        mean, each = Mean.of(losses[:, : len(names)].double().mean(dim=1)), losses.double().mean(dim=0).tolist()
        by_name = dict(zip((*names, *measures), each, strict=True))
        components, beside = ({name: by_name[name] for name in some} for some in (names, measures))
        return cls(mean.mean, mean.standard_error, mean.n_examples, components, beside)

    def __str__(self) -> str:
        beside = ", ".join(f"{name} {value:.2f}" for name, value in self.measures.items())
        return f"{self.mean:.4f} ± {self.standard_error:.4f}" + (f" ({beside})" if beside else "")


def per_example(
    values: Float[torch.Tensor, "*variant example instance"], there: Float[torch.Tensor, "example instance"]
) -> Float[torch.Tensor, "*variant example"]:
    """Average over the instances that are ``there`` (1) and not elsewhere (0); NaN in an example without any."""
    return (values * there).sum(dim=-1) / there.sum(dim=-1)

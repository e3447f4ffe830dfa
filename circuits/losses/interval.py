"""Confidence intervals of means and shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from circuits.utils.lazy import torch

RESAMPLED = 2000  # bootstrap resamples


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval (95% by default)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float[torch.Tensor, " example"], seed: int) -> Interval:
        """Return a percentile bootstrap interval from ``RESAMPLED`` resamples of the examples."""
        from scipy.stats import bootstrap

        numbers = values.double().cpu().numpy()
        if not np.ptp(numbers):  # scipy returns NaN if all values are equal
            return cls(*3 * (float(numbers.mean()),))
        drawn = {"n_resamples": RESAMPLED, "method": "percentile", "rng": np.random.default_rng(seed)}
        interval = bootstrap((numbers,), np.mean, vectorized=True, batch=256, **drawn).confidence_interval
        return cls(float(numbers.mean()), float(interval.low), float(interval.high))

    @classmethod
    def of_share(cls, right: int, n: int, level: float = 0.95) -> Interval:
        """Return Wilson's interval of the share ``right`` of ``n``."""
        from scipy.stats import binomtest

        interval = binomtest(right, n).proportion_ci(level, method="wilson")
        return cls(right / n, float(interval.low), float(interval.high))

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_json(self) -> dict[str, float]:
        """Return ``mean``, ``low`` and ``high``."""
        return {"mean": self.mean, "low": self.low, "high": self.high}

"""What chance may have made of a number."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from jaxtyping import Float

from circuits.lazy import torch

RESAMPLED = 2000  # times


@dataclass(frozen=True)
class Interval:
    """A mean, and where chance may have moved it from: 95%, unless told otherwise."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float[torch.Tensor, " example"], seed: int) -> Interval:
        """A bootstrap interval: the examples are drawn ``RESAMPLED`` times with replacement."""
        numbers = values.double().cpu().numpy()
        rng = np.random.default_rng(seed)
        means = [rng.choice(numbers, len(numbers)).mean() for _ in range(RESAMPLED)]
        low, high = np.quantile(means, [0.025, 0.975])
        return cls(float(numbers.mean()), float(low), float(high))

    @classmethod
    def of_share(cls, right: int, n: int, level: float = 0.95) -> Interval:
        """Wilson's interval of a share, ``right`` of ``n``."""
        z, share = NormalDist().inv_cdf((1 + level) / 2), right / n
        middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
        half = z / (1 + z**2 / n) * (share * (1 - share) / n + z**2 / (4 * n**2)) ** 0.5
        return cls(share, max(0.0, middle - half), min(1.0, middle + half))

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_json(self) -> dict[str, float]:
        """``mean``, ``low`` and ``high``."""
        return {"mean": self.mean, "low": self.low, "high": self.high}

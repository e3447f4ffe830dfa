"""Confidence intervals of shares."""

from __future__ import annotations

from typing import NamedTuple


class Interval(NamedTuple):
    """A share with its confidence interval (95% by default)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of_share(cls, right: int, n: int, level: float = 0.95) -> Interval:
        """Return Wilson's interval of the share ``right`` of ``n``."""
        from scipy.stats import binomtest

        interval = binomtest(right, n).proportion_ci(level, method="wilson")
        return cls(right / n, float(interval.low), float(interval.high))

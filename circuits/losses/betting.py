"""Decide whether a mean is below a limit, with a stated error, on as many examples as it takes.

Evidence is the wealth of a gambler who bets on each example that the mean is below (or above) the limit, and who stakes
what the examples before suggest (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by
betting"). If the mean is at the limit or beyond, the wealth grows a hundredfold in at most 1% of cases, however heavy
the tails are and whenever one stops. All that is asked is that the values are bounded: they are clipped to -1 and 1.
"""

from __future__ import annotations

import math

from jaxtyping import Bool, Float

from circuits.losses.loss import Compared
from circuits.settings import current
from circuits.utils.lazy import torch

STAKE = 0.9  # of what may be lost without going broke
PRIOR = 0.05  # the variance that the first bets assume


def decided(
    values: Float[torch.Tensor, " example"], limit: float, error: float, above: float | None = None
) -> Compared:
    """Return on which side of a limit the mean of values between -1 and 1 is.

    The values are independent, in the order in which they were drawn. More of them never change a decision.

    Args:
        values: one value for each example.
        limit: the limit.
        error: the share of cases in which "below" may be wrong.
        above: the same for "above"; by default ``error``, too.
    """
    below = _first(_log_wealth(values, limit, 1) >= -math.log(error))
    other = _first(_log_wealth(values, limit, -1) >= -math.log(error if above is None else above))
    return "undecided" if below == other else "below" if below < other else "above"


def margin(n: int) -> float:
    """Return how far from a limit a mean must be, at least, for ``n`` examples to decide, even if all are alike."""
    return -math.log(current().error) / STAKE / n


def _first(there: Bool[torch.Tensor, " example"]) -> float:
    """Return the first example that is true; infinity if none is."""
    return float(there.int().argmax()) if there.any() else math.inf


def _log_wealth(values: Float[torch.Tensor, " example"], limit: float, side: int) -> Float[torch.Tensor, " example"]:
    """Return the logarithm of the wealth after every example; ``side`` is 1 for bets that the mean is below."""
    x = values.double().clamp(-1, 1)
    before, times = torch.zeros_like(x[:1]), torch.arange(1, len(x) + 1, device=x.device)
    mean = torch.cat([before, (x.cumsum(0) / times)[:-1]])  # of the values before; 0 for the first
    variance = torch.cat([before + PRIOR, ((PRIOR + (x - mean).square().cumsum(0)) / (times + 1))[:-1]])
    gain = side * (limit - mean)
    worst = 1 - side * limit  # what one example may cost; nothing if no value is beyond the limit
    stake = (gain / (variance + gain.square())).clamp(0, STAKE / worst if worst > 0 else math.inf)
    return torch.log1p(stake * side * (limit - x)).cumsum(0)

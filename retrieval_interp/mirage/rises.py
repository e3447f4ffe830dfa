"""How abruptly a curve rises: the rule of docs/protocol.md for what is a jump."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from retrieval_interp.experiments.observations import QUICK
from retrieval_interp.training.curves import Curve, first_crossing

BEGUN, DONE = 0.1, 0.9  # the shares of its way between which a curve rises
LEAST_WAY = 0.1  # a curve whose best level is lower has not risen
JUMPS, GRADUAL, NOT_RESOLVED, NOT_RISEN = "jumps", "gradual", "not resolved", "not risen"
KINDS = (JUMPS, GRADUAL, NOT_RESOLVED, NOT_RISEN)


@dataclass(frozen=True)
class Rise:
    """The rise of one curve.

    Attributes:
        kind: one of ``KINDS``.
        best: the highest level of the curve.
        begins: the last step before the end at which at most 10% of the way is gone, or the first step of the curve if
            there is none; None if the curve has not risen.
        ends: the first step at which 90% of the way is gone; None if the curve has not risen.
    """

    kind: str
    best: float
    begins: float | None = None
    ends: float | None = None

    @property
    def share(self) -> float | None:
        """The steps that the rise takes, relative to all steps until its end; None if the curve has not risen."""
        return None if self.begins is None or self.ends is None else (self.ends - self.begins) / self.ends


def rise(curve: Curve, end: float | None = None) -> Rise:
    """Return the rise of a curve whose way begins at 0.

    Args:
        curve: the values by step, in ascending steps, all above 0; interpolated linearly.
        end: the level at which the way ends; None: the highest level of the curve.
    """
    best = max(curve.values())
    if best < (LEAST_WAY if end is None else end):
        return Rise(NOT_RISEN, best)
    gone = {step: value / (best if end is None else end) for step, value in curve.items()}
    ends = _reached(gone)
    first, begins, apart = next(iter(gone)), None, 0.0
    for (before, low), (step, high) in pairwise(gone.items()):
        if before >= ends:
            break
        if low <= BEGUN < high:
            begins, apart = before + (BEGUN - low) / (high - low) * (step - before), float(step - before)
        if ends <= step:
            apart = max(apart, step - before)
    if begins is None:  # it had begun before the first step
        return Rise(GRADUAL if ends - first >= QUICK * ends else NOT_RESOLVED, best, float(first), ends)
    if apart >= QUICK * ends:
        return Rise(NOT_RESOLVED, best, begins, ends)
    return Rise(JUMPS if ends - begins < QUICK * ends else GRADUAL, best, begins, ends)


def _reached(gone: Curve) -> float:
    """Return the first step at which 90% of the way is gone."""
    reached = first_crossing(gone, DONE)
    assert reached is not None  # the way ends at a level that the curve reaches
    return reached


def value_at(curve: Curve, step: float) -> float:
    """Return the value of a curve at a step, interpolated linearly; beyond its ends, that of the nearest end."""
    before, *others = curve.items()
    for after in others:
        if step <= after[0]:
            share = max(0.0, (step - before[0]) / (after[0] - before[0]))
            return before[1] + share * (after[1] - before[1])
        before = after
    return before[1]

"""Numbers with standard errors: decisions on them, and their columns in tables."""

from __future__ import annotations

from circuits.losses.loss import Loss, Mean
from circuits.results import Decision


def above(number: Loss | Mean, threshold: float) -> Decision:
    """Return whether a number is at least a threshold; undecided within three standard errors."""
    return "undecided" if number.near(threshold) else "holds" if number.mean >= threshold else "fails"


def below(number: Loss | Mean, threshold: float) -> Decision:
    """Return whether a number is below a threshold; undecided within three standard errors."""
    return "undecided" if number.near(threshold) else "holds" if number.mean < threshold else "fails"


def columns(name: str, number: Loss | Mean | None) -> dict[str, float | None]:
    """Return a number as ``name``, and its standard error as ``name_se``; None if there is none."""
    both = (None, None) if number is None else (number.mean, number.standard_error)
    return dict(zip((name, f"{name}_se"), both, strict=True))

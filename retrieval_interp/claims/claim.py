"""One row of the ledger."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "differs", "not yet measured"]


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        section: of the paper.
        claim: in our words.
        paper: the paper's number.
        measured: ours, with its error or range.
        runs: how many trained transformers it rests on.
        command: how it was measured.
        verdict: whether the claim holds for them.
    """

    section: str
    claim: str
    paper: str
    measured: str = "-"
    runs: int = 0
    command: str = "-"
    verdict: Verdict = "not yet measured"


def spread(losses: Sequence[float]) -> str:
    """From the lowest to the highest, in words."""
    return f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"


def listed(numbers: Iterable[int]) -> str:
    """With commas."""
    return ", ".join(map(str, numbers))


def verdict_of(holds: bool | None) -> Verdict:
    """In words; None where it was not measured."""
    return "not yet measured" if holds is None else "holds" if holds else "differs"

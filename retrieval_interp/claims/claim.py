"""A row of the ledger, and the ledger as a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from circuits.losses.interval import Interval

Verdict = Literal["holds", "holds at smaller scale", "differs", "not measured"]
PAGE_HEAD = (
    "# The paper's claims",
    "",
    "This table compares each quantitative claim of the paper with the measurements of this project. The numbers come",
    "from `data/`. `retrieval-interp study claims --out docs/claims.md` writes this page. [The protocol](protocol.md)",
    "says what counts as *holds*. *Holds at smaller scale* means that the rule is met by smaller models, fewer steps",
    "or fewer runs than the paper's. Brackets are Wilson's 95% intervals.",
    "",
)


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        section: the section of the paper.
        claim: the claim in our words.
        paper: the paper's number.
        models: the transformers that were measured: their recipe, and their seeds or sizes.
        measured: our number, with its error or range.
        runs: the number of trained transformers that were measured.
        command: the command that measured it.
        verdict: whether the claim holds for these transformers.
    """

    section: str
    claim: str
    paper: str
    models: str = "-"
    measured: str = "-"
    runs: int = 0
    command: str = "-"
    verdict: Verdict = "not measured"


def spread(losses: Sequence[float]) -> str:
    """Return a text such as ``0.030 to 0.076``, the range of the losses."""
    return f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"


def listed(numbers: Iterable[int]) -> str:
    """Return the numbers separated by commas."""
    return ", ".join(map(str, numbers))


def share(right: int, n: int) -> str:
    """Return a text such as ``18 of 18 [0.82, 1.00]``, with Wilson's 95% interval."""
    interval = Interval.of_share(right, n)
    return f"{right} of {n} [{interval.low:.2f}, {interval.high:.2f}]"


def verdict_of(holds: bool | None, smaller: bool = False) -> Verdict:
    """Return the verdict.

    Args:
        holds: whether the rule is met; None if this was not measured.
        smaller: whether the models, steps or runs are fewer than the paper's.
    """
    if holds is None:
        return "not measured"
    return ("holds at smaller scale" if smaller else "holds") if holds else "differs"


def claims_page(rows: Sequence[Claim]) -> str:
    """Return the ledger as a Markdown page."""
    table = [(row.section, row.claim, row.paper, row.models, row.measured, row.verdict) for row in rows]
    head = [("section", "claim", "paper", "models", "measured here", "verdict"), ("---",) * 6]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (*head, *table)]
    commands = dict.fromkeys(
        f"- {row.section}, {row.claim} ({row.models}): `{row.command}`" for row in rows if row.command != "-"
    )
    return "\n".join([*PAGE_HEAD, *lines, "", "## How each claim was measured", "", *commands, ""])

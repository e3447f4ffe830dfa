"""A row of the ledger, and the ledger as a page."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "differs", "not yet measured"]
PAGE_HEAD = (
    "# The paper's claims",
    "",
    "This table compares each quantitative claim of the paper with the measurements of this project. The numbers come",
    "from `data/`. `retrieval-interp study claims --out docs/claims.md` writes this page. [The protocol](protocol.md)",
    "says what counts as *holds*.",
    "",
)


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        section: the section of the paper.
        claim: the claim in our words.
        paper: the paper's number.
        measured: our number, with its error or range.
        runs: the number of trained transformers that were measured.
        command: the command that measured it.
        verdict: whether the claim holds for these transformers.
    """

    section: str
    claim: str
    paper: str
    measured: str = "-"
    runs: int = 0
    command: str = "-"
    verdict: Verdict = "not yet measured"


def spread(losses: Sequence[float]) -> str:
    """Return a text such as ``0.030 to 0.076``, the range of the losses."""
    return f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"


def listed(numbers: Iterable[int]) -> str:
    """Return the numbers separated by commas."""
    return ", ".join(map(str, numbers))


def verdict_of(holds: bool | None) -> Verdict:
    """Return the verdict; ``holds`` is None if the claim was not measured."""
    return "not yet measured" if holds is None else "holds" if holds else "differs"


def claims_page(rows: Sequence[Claim]) -> str:
    """Return the ledger as a Markdown page."""
    table = [(row.section, row.claim, row.paper, row.measured, row.verdict) for row in rows]
    head = [("section", "claim", "paper", "measured here", "verdict"), ("---",) * 5]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (*head, *table)]
    commands = [f"- {row.section}, {row.claim}: `{row.command}`" for row in rows if row.command != "-"]
    return "\n".join([*PAGE_HEAD, *lines, "", "## How each claim was measured", "", *commands, ""])

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
    "from `data/`. `retrieval-interp study claims --out docs/claims.md` writes this page.",
    "[The protocol of the literal reading](protocol_literal.md)",
    "says what counts as *holds*. *Holds at smaller scale* means that the rule is met by smaller models, fewer steps",
    "or fewer runs than the paper's. *Not measured* also means that a run does not show it either way, or that a",
    "circuit which the rule needs was not found and those found meet the rule. *Runs* counts the trained transformers",
    "on which a rule was tested. *Ours* marks rows that the paper does not have. Brackets are Wilson's 95% intervals.",
    "Seeds 0 and 3 of A to C were left out of recipe `small`, and none out of recipe `paper`",
    "([why](results.md#transformers-a-b-and-c)).",
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
        runs: the number of trained transformers on which the rule was tested.
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
    """Return a text such as ``0.030 to 0.076``, the range of the losses, or ``0.030`` if they are all the same."""
    low, high = f"{min(losses):.3f}", f"{max(losses):.3f}"
    return low if low == high else f"{low} to {high}"


def listed(numbers: Iterable[int]) -> str:
    """Return the numbers separated by commas."""
    return ", ".join(map(str, numbers))


def share(right: int, n: int) -> str:
    """Return a text such as ``18 of 18 [0.82, 1.00]``, with Wilson's 95% interval; ``0 of 0`` has none."""
    if not n:
        return "0 of 0"
    interval = Interval.of_share(right, n)
    return f"{right} of {n} [{interval.low:.2f}, {interval.high:.2f}]"


def all_met(met: Sequence[bool | None], complete: bool = True) -> bool | None:
    """Return whether a rule is met by all of its cases.

    Args:
        met: whether each case meets the rule; None for a case that does not show it either way.
        complete: whether no case is missing.

    Returns:
        False if a case does not meet the rule; else None if a case is missing or shows nothing, or if there is none.
    """
    if False in met:
        return False
    return None if not complete or not met or None in met else True


def verdict_of(holds: bool | None, smaller: bool = False) -> Verdict:
    """Return the verdict.

    Args:
        holds: whether the rule is met; None if that is not known.
        smaller: whether the models, steps or runs are fewer than the paper's.
    """
    if holds is None:
        return "not measured"
    return ("holds at smaller scale" if smaller else "holds") if holds else "differs"


def claims_page(rows: Sequence[Claim]) -> str:
    """Return the ledger as a Markdown page."""
    table = [
        (row.section, row.claim, row.paper, row.models, str(row.runs or "-"), row.measured, row.verdict) for row in rows
    ]
    head = [("section", "claim", "paper", "models", "runs", "measured here", "verdict"), ("---",) * 7]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in (*head, *table)]
    commands = dict.fromkeys(
        f"- {row.section}, {row.claim} ({row.models}): `{row.command}`" for row in rows if row.command != "-"
    )
    return "\n".join([*PAGE_HEAD, *lines, "", "## How each claim was measured", "", *commands, ""])

"""A row of the ledger: a claim, its verdict, and texts for numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from retrieval_interp.results import Interval

EARLIER = pd.read_csv(Path(__file__).parent / "earlier.csv", comment="#", index_col=["section", "claim"])["before"]


@dataclass(frozen=True)
class Row:
    """A claim: the cases in which its rule is met or not, of how many in the paper, what was seen, and runs to come."""

    section: str
    claim: str
    paper: str
    papers: int
    met: Sequence[bool]
    measured: str
    command: str
    to_come: int = 0

    @property
    def verdict(self) -> str:
        if not self.met:
            return "not measured"
        smaller = len(self.met) < self.papers
        return "differs" if not all(self.met) else "holds at smaller scale" if smaller else "holds"

    def cells(self) -> dict[str, str]:
        counted = (
            share(sum(self.met), len(self.met)) if len(self.met) > 1 else f"{sum(self.met)} of 1" if self.met else "-"
        )
        named = {"section": self.section, "claim": self.claim, "paper": self.paper, "verdict": self.verdict}
        to_come = f" ({self.to_come} to come)" if self.to_come else ""
        return (
            named
            | {"n of N": counted + to_come, "measured": self.measured, "before": EARLIER.loc[self.section, self.claim]}
            | {"command": f"`{self.command}`" if self.command else "-"}
        )


def share(right: int, n: int) -> str:
    """Return a text such as ``18 of 18 [0.82, 1.00]``, with Wilson's 95% interval."""
    interval = Interval.of_share(right, n)
    return f"{right} of {n} [{interval.low:.2f}, {interval.high:.2f}]"


def listed(numbers: Iterable[object]) -> str:
    return ", ".join(map(str, numbers)) or "none"

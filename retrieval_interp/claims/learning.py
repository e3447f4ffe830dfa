"""Section 7: what is learned, and in which order."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from retrieval_interp.checkpoints import LOG
from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.tables import ABC, FIGURE4, D, crossings
from retrieval_interp.sweep.figure4 import FAILED, asked_alone, fewest_layers, in_order, with_curriculum
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.sweep.training import LEARNED

SMALLER = "D = 3, 1 to 6 layers of 4 heads"  # than in the paper
COMMAND = "retrieval-interp sweep figure4"


def section_7(data: Path) -> list[Claim]:
    """Figure 4, made small, and the training of A to D."""
    runs = read_runs(data / FIGURE4)
    alone, curriculum = asked_alone(runs), with_curriculum(runs)
    failed = sum(run.loss > FAILED for run in alone)
    fewest = fewest_layers(curriculum)
    begun = [run for run in curriculum if any(step is not None for step in run.fell.values())]
    logs = [crossings(data / name / LOG) for name in (*ABC, D)]
    ordered = sum(in_order(run.fell) for run in begun), sum(map(_rising, logs))
    return [
        Claim(
            "7.2",
            "without the implicit curriculum the loss stays high, whatever the depth",
            f"above {FAILED} in 100% of 64 runs",
            f"{failed} of {len(alone)} runs ({SMALLER}; lowest {min(run.loss for run in alone):.3f})",
            len(alone),
            COMMAND,
            verdict_of(failed == len(alone)),
        ),
        Claim(
            "7.2",
            "later positions of a chain need more layers",
            "figure 4, right",
            "learned by most seeds with "
            + ", ".join(f"{layers or 'no number of'} layers ({symbol})" for symbol, layers in fewest.items())
            + f" or more ({SMALLER})",
            len(curriculum),
            COMMAND,
            verdict_of(_later_need_more([*fewest.values()])),
        ),
        Claim(
            "7.2",
            f"partial losses fall below {LEARNED} in the order of the chain",
            "in 100% of 64 runs",
            f"{ordered[0]} of {len(begun)} runs ({SMALLER}), {ordered[1]} of {len(logs)} (A to D)",
            len(begun) + len(logs),
            f"{COMMAND}; retrieval-interp train transformer_a (and b, c, d)",
            verdict_of(ordered == (len(begun), len(logs))),
        ),
    ]


def _rising(steps: Sequence[float | None]) -> bool:
    there = [step for step in steps if step is not None]
    return len(there) == len(steps) and all(a < b for a, b in pairwise(there))


def _later_need_more(layers: Sequence[float | None]) -> bool:
    """Whether no symbol needs fewer layers than one before it, and the last more than the first."""
    needed = [float("inf") if number is None else number for number in layers]
    return needed[0] < needed[-1] and all(a <= b for a, b in pairwise(needed))

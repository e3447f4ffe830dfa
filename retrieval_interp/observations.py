"""What the paper observed of the emergence of heads (section 9, i to iv), computed for any run.

A path *retrieves* a symbol when the query attends along it to a position that holds that symbol. The paths below the
first of these, in the positions that it reads, are what makes it an induction head.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from circuits.circuit import Path
from retrieval_interp.emergence import EMERGED, STEPS_PER_EPOCH, Emergence, first_crossing

BARELY = 0.1  # attention from which the rise of a path is counted


@dataclass(frozen=True)
class Observation:
    """One observation: whether it holds for this run, in words, and its numbers (in steps).

    Attributes:
        name: i, ii, iii or iv, as in the paper.
        holds: None where this run cannot say.
        sentence: what was measured.
        numbers: the same for programs.
    """

    name: str
    holds: bool | None
    sentence: str
    numbers: dict[str, Any]

    @property
    def verdict(self) -> str:
        """Holds, differs, or cannot be said."""
        return {True: "holds", False: "differs", None: "cannot be said"}[self.holds]


def retrieved(path: Path) -> int | None:
    """The k of the symbol x_k that the query fetches along this path, if it fetches any."""
    match = re.fullmatch(r"pair(\d+)\.(first|second)", path.target)
    if path.source != "query" or match is None:
        return None
    return int(match[1]) - (match[2] == "first")


def observations(run: Emergence) -> list[Observation]:
    """The paper's four observations, with the numbers of this run."""
    arrivals = _arrivals(run)
    return [_first(run, arrivals), _reuse(arrivals), _order(run), _last(arrivals)]


def _arrivals(run: Emergence) -> dict[int, tuple[Path, float]]:
    """For every symbol the path along which the query fetched it first, and the step at which that emerged."""
    found: dict[int, tuple[Path, float]] = {}
    for path in run.circuit.paths:
        step, k = run.emerged[str(path)], retrieved(path)
        if k and step is not None and (k not in found or step < found[k][1]):
            found[k] = path, step
    return dict(sorted(found.items()))


def _first(run: Emergence, arrivals: dict[int, tuple[Path, float]]) -> Observation:
    """i: after slow learning an induction head, which fetches x1, emerges first and abruptly."""
    if 1 not in arrivals:
        return Observation("i", None, "No path of the circuit by which the query fetches x1 emerged.", {})
    path, step = arrivals[1]
    others = [later for k, (_, later) in arrivals.items() if k != 1]
    before = [p for p in run.circuit.paths if p.head.layer < path.head.layer and retrieved(p) is None]
    beneath = {str(p): run.emerged[str(p)] for p in before}
    attention = run.attention[str(path)]
    started = first_crossing(attention, BARELY) or 0.0
    rise = step - started
    first = all(step < later for later in others)
    abrupt: bool | None = rise < 0.25 * step
    sentence = (
        f"The query fetches x1 along {path}, whose attention passes {EMERGED:g} at step {_at(step)}, "
        f"{'before' if first else 'not before'} any other symbol; "
    )
    if started == attention.index[0]:
        abrupt = None
        sentence += f"it is {attention.iloc[0]:.2f} at the first checkpoint already, too late to say how abruptly."
    else:
        sentence += (
            f"from {BARELY:g} to {EMERGED:g} it takes {rise:.0f} steps, {100 * rise / step:.0f}% of the time until "
            f"then ({'abrupt' if abrupt else 'not abrupt'}: a quarter is the limit)."
        )
    if beneath:
        listed = "; ".join(
            f"{name} at {_at(at)}" if at is not None else f"{name} never" for name, at in beneath.items()
        )
        sentence += f" Below it: {listed}."
    return Observation("i", first and abrupt, sentence, {"step": step, "rise": rise, "beneath": beneath})


def _reuse(arrivals: dict[int, tuple[Path, float]]) -> Observation:
    """ii: quickly after, a head above fetches x2, which it can find only by x1: it reuses what is there."""
    if not {1, 2} <= set(arrivals):
        return Observation("ii", None, "The circuit has no path that fetches x1 and one that fetches x2.", {})
    (first, at), (second, then) = arrivals[1], arrivals[2]
    lag, above = then - at, second.head.layer > first.head.layer
    sentence = (
        f"x2 is fetched along {second}, {lag:.0f} steps after x1 ({100 * lag / at:.0f}% of the time that x1 took), "
        f"{'above' if above else 'not above'} the head that fetches x1."
    )
    return Observation("ii", above and 0 < lag < at, sentence, {"lag": lag, "above": above})


def _order(run: Emergence) -> Observation:
    """iii: each further head drives down the next partial loss, in order."""
    learned = run.learned
    steps = [step for step in learned.values() if step is not None]
    if len(steps) < len(learned):
        missing = [part for part, step in learned.items() if step is None]
        return Observation("iii", False, f"Never below {EMERGED:g}: {', '.join(missing)}.", {"steps": learned})
    ordered = all(a < b for a, b in pairwise(steps))
    listed = ", ".join(f"{part} at {_at(step)}" for part, step in learned.items())
    sentence = f"The partial losses fall below {EMERGED:g} {'in order' if ordered else 'out of order'}: {listed}."
    return Observation("iii", ordered, sentence, {"steps": learned})


def _last(arrivals: dict[int, tuple[Path, float]]) -> Observation:
    """iv: the last head comes much later than the one before."""
    steps = [step for _, step in arrivals.values()]
    if len(steps) < 3:
        return Observation("iv", None, "Fewer than three symbols are fetched by paths of the circuit.", {})
    gaps = [b - a for a, b in pairwise(steps)]
    longest = gaps[-1] > max(0.0, *gaps[:-1])
    symbols, waits = ", ".join(f"x{k}" for k in arrivals), ", ".join(f"{gap:.0f}" for gap in gaps)
    sentence = (
        f"Between the paths that fetch {symbols} lie {waits} steps: "
        f"the last gap is {'the longest' if longest else 'not the longest'}."
    )
    return Observation("iv", longest, sentence, {"gaps": gaps})


def _at(step: float | None) -> str:
    if step is None:
        return "no step"
    return f"{step:.0f} (epoch {step / STEPS_PER_EPOCH:.0f})"

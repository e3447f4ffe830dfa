"""What the paper observed of the emergence of heads (section 9, i to iv), computed for any run.

A symbol has arrived as soon as paths that have emerged bring it to the query, from head to head: in a circuit that
walks along the chain by a path of its own, in one where positions take over what others know by several together.
The paths below the first that brings x1, in the position that it reads, are what makes it an induction head.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from circuits.circuit import AttentionPath
from circuits.flow.circuit_flow import circuit_flow
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, Emergence
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.training.curves import EMERGED, first_crossing

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


def observations(run: Emergence) -> list[Observation]:
    """The paper's four observations, with the numbers of this run."""
    arrivals = arrived(run)
    return [_first(run, arrivals), _reuse(arrivals), _order(run), _last(arrivals)]


def arrived(run: Emergence) -> dict[int, tuple[AttentionPath, float]]:
    """For every symbol xk the step from which it can come to the query, and the path that brings it.

    Of a task that is no chain nothing is known.
    """
    if not all(re.fullmatch(r"x[1-9]\d*", part) for part in run.components):
        return {}
    layout = chain_layout(max(int(part[1:]) for part in run.components))
    emerged = {path: step for path in run.circuit.paths if (step := run.emerged[str(path)]) is not None}
    found: dict[int, tuple[AttentionPath, float]] = {}
    for now in sorted(set(emerged.values())):
        there = [path for path, step in emerged.items() if step <= now]
        for carried in circuit_flow(run.circuit, layout, only=there, replaced=True).carried:
            if carried.path.source == "query":
                for piece in carried.new - layout.places:
                    found.setdefault(int(piece[1:]), (carried.path, now))
    return dict(sorted(found.items()))


def _first(run: Emergence, arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """i: after slow learning an induction head, which fetches x1, emerges first and abruptly."""
    if 1 not in arrivals:
        return Observation("i", None, "No path of the circuit that brings x1 to the query emerged.", {})
    path, step = arrivals[1]
    others = [later for k, (_, later) in arrivals.items() if k != 1]
    before = [p for p in run.circuit.paths if p.head.layer < path.head.layer and p.source in (path.target, "*")]
    beneath = {str(p): run.emerged[str(p)] for p in before}
    attention = run.attention[str(path)]
    earliest, lowest = next(iter(attention.items()))
    started = first_crossing(attention, BARELY) or 0.0
    rise = step - started
    first = all(step < later for later in others)
    abrupt: bool | None = rise < 0.25 * step
    sentence = (
        f"The query fetches x1 along {path}, whose attention passes {EMERGED:g} at step {_at(step)}, "
        f"{'before' if first else 'not before'} any other symbol; "
    )
    if started == earliest:
        abrupt = None
        sentence += f"it is {lowest:.2f} at the first checkpoint already, too late to say how abruptly."
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


def _reuse(arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """ii: quickly after, a head above fetches x2, which it can find only by x1: it reuses what is there."""
    if not {1, 2} <= set(arrivals):
        return Observation("ii", None, "No paths of the circuit that bring x1 and x2 to the query emerged.", {})
    (first, at), (second, then) = arrivals[1], arrivals[2]
    lag, above = then - at, second.head.layer > first.head.layer
    sentence = (
        f"x2 comes to the query along {second}, {lag:.0f} steps after x1 ({100 * lag / at:.0f}% of the time that x1 "
        f"took; quickly is less than 100%), {'above' if above else 'not above'} the head that brings x1."
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


def _last(arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """iv: the last head comes much later than the one before."""
    steps = [step for _, step in arrivals.values()]
    if len(steps) < 3:
        return Observation("iv", None, "Fewer than three symbols are brought to the query by paths of the circuit.", {})
    gaps = [b - a for a, b in pairwise(steps)]
    longest = gaps[-1] > max(0.0, *gaps[:-1])
    symbols, waits = ", ".join(f"x{k}" for k in arrivals), ", ".join(f"{gap:.0f}" for gap in gaps)
    sentence = (
        f"Between the arrivals of {symbols} at the query lie {waits} steps: "
        f"the last gap is {'the longest' if longest else 'not the longest'}."
    )
    return Observation("iv", longest, sentence, {"gaps": gaps})


def _at(step: float | None) -> str:
    if step is None:
        return "no step"
    return f"{step:.0f} (epoch {step / STEPS_PER_EPOCH:.0f})"

"""The paper's four observations on the emergence of heads (section 9, i to iv), computed for any run.

A symbol arrives at the query once the paths that have emerged carry it there, by information flow. In some circuits one
path per symbol is enough, because the query follows the chain step by step. In others a symbol needs several paths,
because positions first collect what other positions know. The paths in lower layers that write to the position where
the query reads x1 make the head that reads it an induction head.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from circuits.circuit import AttentionPath
from circuits.flow.circuit_flow import circuit_flow
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, Emergence
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.training.curves import EMERGED, Curve, first_crossing

RISE_FROM = 0.1  # the attention at which the rise of a path begins
QUICK = 0.25  # of the steps until then: a shorter rise is abrupt, and a shorter lag is quick


@dataclass(frozen=True)
class Observation:
    """One of the paper's observations, checked on a run.

    Attributes:
        name: i, ii, iii or iv, as in the paper.
        holds: whether it holds for this run; None if the run does not show it either way.
        sentence: the measurement in words.
        numbers: the measurement in numbers, in steps.
    """

    name: str
    holds: bool | None
    sentence: str
    numbers: dict[str, Any]

    @property
    def verdict(self) -> str:
        """The outcome in words: holds, differs or undetermined."""
        return {True: "holds", False: "differs", None: "undetermined"}[self.holds]


def observations(run: Emergence) -> list[Observation]:
    """Check the paper's four observations on a run."""
    arrivals = arrived(run)
    return [_first(run, arrivals), _reuse(run, arrivals), _order(run), _last(arrivals)]


def arrived(run: Emergence) -> dict[int, tuple[AttentionPath, float]]:
    """Return for every symbol number k the path that brings xk to the query, and the step at which xk arrives.

    The result is empty if the task is not a chain.
    """
    if not all(re.fullmatch(r"x[1-9]\d*", part) for part in run.components):
        return {}
    layout = chain_layout(max(int(part[1:]) for part in run.components))
    emerged = {path: step for path in run.circuit.paths if (step := run.emerged[str(path)]) is not None}
    found: dict[int, tuple[AttentionPath, float]] = {}
    for step in sorted(set(emerged.values())):
        so_far = [path for path, first in emerged.items() if first <= step]
        for carried in circuit_flow(run.circuit, layout, only=so_far, replaced=True).carried:
            if carried.path.source == "query":
                for piece in carried.new - layout.places:
                    found.setdefault(int(piece[1:]), (carried.path, step))
    return dict(sorted(found.items()))


def _first(run: Emergence, arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """Check i: after slow learning, an induction head, which fetches x1, emerges first and abruptly."""
    if 1 not in arrivals:
        return Observation("i", None, "No path that brings x1 to the query has emerged.", {})
    path, step = arrivals[1]
    others = [later for k, (_, later) in arrivals.items() if k != 1]
    before = [p for p in run.circuit.paths if p.head.layer < path.head.layer and p.source in (path.target, "*")]
    beneath = {str(p): run.emerged[str(p)] for p in before}
    attention = run.attention[str(path)]
    earliest, lowest = next(iter(attention.items()))
    started = first_crossing(attention, RISE_FROM) or 0.0
    rise = step - started
    first = all(step < later for later in others)
    abrupt: bool | None = rise < QUICK * step
    sentence = (
        f"The query fetches x1 along {path}, whose attention exceeds {EMERGED:g} at step {_at(step)}. x1 arrives "
        f"{'before' if first else 'not before'} all other symbols. "
    )
    if started == earliest:
        abrupt = None
        sentence += f"The attention is already {lowest:.2f} at the first checkpoint, so its rise was not measured."
    else:
        sentence += (
            f"The attention rises from {RISE_FROM:g} to {EMERGED:g} in {rise:.0f} steps, {100 * rise / step:.0f}% of "
            f"the steps until then ({'abrupt' if abrupt else 'not abrupt'}; the limit is {100 * QUICK:.0f}%)."
        )
    if beneath:
        listed = "; ".join(
            f"{name} at step {_at(at)}" if at is not None else f"{name} never" for name, at in beneath.items()
        )
        sentence += f" Paths below it emerged: {listed}."
    return Observation("i", first and abrupt, sentence, {"step": step, "rise": rise, "beneath": beneath})


def _reuse(run: Emergence, arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """Check ii: quickly after, a head above fetches x2. It can find x2 only by x1, so it reuses the first head."""
    if not {1, 2} <= set(arrivals):
        return Observation("ii", None, "No paths that bring both x1 and x2 to the query have emerged.", {})
    (first, at), (second, then) = arrivals[1], arrivals[2]
    lag, above = then - at, second.head.layer > first.head.layer
    apart = _between_checkpoints(run.attention[str(second)], then)
    sentence = (
        f"x2 arrives along {second}, {lag:.0f} steps after x1 ({100 * lag / at:.0f}% of the steps that x1 took; the "
        f"limit is {100 * QUICK:.0f}%). Its head is {'above' if above else 'not above'} the head that brings x1."
    )
    holds: bool | None = above and 0 < lag < QUICK * at
    if holds and lag < apart:
        holds = None
        sentence += f" The lag is not resolved, because there the checkpoints are {apart:.0f} steps apart."
    return Observation("ii", holds, sentence, {"lag": lag, "above": above, "between_checkpoints": apart})


def _between_checkpoints(attention: Mapping[int, float], step: float) -> float:
    """Return how far the checkpoints are apart between which a step lies."""
    return float(min((b - a for a, b in pairwise(attention) if a <= step <= b), default=0))


def _order(run: Emergence) -> Observation:
    """Check iii: the last two partial validation losses fall in order, after those of all other symbols."""
    learned = run.learned
    if missing := [symbol for symbol, step in learned.items() if step is None]:
        sentence = f"These partial losses never fall below {EMERGED:g}: {', '.join(missing)}."
        return Observation("iii", False, sentence, {"steps": learned})
    *others, before, last = [0, *(_first_seen_below(curve) for curve in run.validated.values())]
    wrong = max(others) > before or before > last
    order = "in order" if max(others) < before < last else "out of order" if wrong else ""
    listed = ", ".join(f"{symbol} at step {_at(step)}" for symbol, step in learned.items())
    sentence = (
        f"The partial validation losses fall below {EMERGED:g}: {listed}. The last two fall "
        f"{order or 'in an order that is not resolved: two fall between the same two validations'}."
    )
    return Observation("iii", {"in order": True, "out of order": False}.get(order), sentence, {"steps": learned})


def _first_seen_below(losses: Curve) -> int:
    """Return the first step at which a loss was measured to be below 0.5."""
    return next(step for step, loss in losses.items() if loss < EMERGED)


def _last(arrivals: dict[int, tuple[AttentionPath, float]]) -> Observation:
    """Check iv: the last head emerges much later than the one before."""
    steps = [step for _, step in arrivals.values()]
    if len(steps) < 3:
        return Observation("iv", None, "The paths bring fewer than three symbols to the query.", {})
    gaps = [b - a for a, b in pairwise(steps)]
    longest = gaps[-1] > max(0.0, *gaps[:-1])
    symbols, waits = ", ".join(f"x{k}" for k in arrivals), ", ".join(f"{gap:.0f}" for gap in gaps)
    sentence = (
        f"The gaps between the arrivals of {symbols} at the query are {waits} steps. "
        f"The last gap is {'the longest' if longest else 'not the longest'}."
    )
    return Observation("iv", longest, sentence, {"gaps": gaps})


def _at(step: float | None) -> str:
    if step is None:
        return "no step"
    return f"{step:.0f} (epoch {step / STEPS_PER_EPOCH:.0f})"

"""The paper's four observations on the emergence of heads (section 9, i to iv), computed for any run.

A symbol arrives at the query once the paths that have emerged carry it there, by information flow; it may need several
paths, because positions first collect what others know. The paths in lower layers that write to the position where the
query reads x1 make the head that reads it an induction head.
"""

import math
import re
from itertools import pairwise
from typing import Any

from pydantic import BaseModel

from circuits.circuit import AttentionPath
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, Emergence
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.circuit_flow import circuit_flow
from retrieval_interp.training.curves import EMERGED, first_below, first_crossing

RISE_FROM = 0.1  # the attention at which the rise of a path begins
QUICK = 0.25  # of the steps until then: a shorter rise is abrupt, and a shorter lag is quick

PAPER = {
    "i": "an induction head, which fetches x1, emerges first and abruptly",
    "ii": "quickly after, a head above it fetches x2, which it can find only by x1",
    "iii": "the last two partial validation losses fall in order, after those of all other symbols",
    "iv": "the last head emerges much later than the one before",
}

SAID = {
    "i": "{path} brings x1 at step {step} (epoch {epoch}); before the other symbols: {first}; steps from an "
    "attention of 0.1 to 0.5: {rise}, where abrupt is less than a quarter of the steps until then. Beneath: {beneath}.",
    "ii": "{path} brings x2 {lag} steps after x1, where quick is less than a quarter of the steps that x1 took; in a "
    "higher layer: {above}; checkpoints there are {between_checkpoints} steps apart.",
    "iii": "They fall below 0.5 at these steps, between validations: {steps}.",
    "iv": "Steps from each arrival to the next: {all}.",
}

Arrivals = dict[int, tuple[AttentionPath, float]]  # for xk the path that brings it to the query, and the step


class Observation(BaseModel, frozen=True):
    """One of the paper's observations, checked on a run.

    Attributes:
        name: i, ii, iii or iv, as in the paper.
        holds: whether it holds for this run; None if the run does not show it either way.
        numbers: the measurement; steps are counted from the beginning of training.
    """

    name: str
    holds: bool | None = None
    numbers: dict[str, Any] = {}

    @property
    def decision(self) -> str:
        """The outcome in words: holds, fails or undecided."""
        return {True: "holds", False: "fails", None: "undecided"}[self.holds]

    @property
    def sentence(self) -> str:
        """The paper's observation, and the measurement, in words."""
        words = {name: _words(value) for name, value in self.numbers.items()} | {"all": _words(self.numbers)}
        measured = SAID[self.name].format_map(words) if self.numbers else "The query does not get the symbols."
        return f"{PAPER[self.name]}. Here: {measured}"


def _words(number: Any) -> str:
    if isinstance(number, dict):
        return ", ".join(f"{name} {_words(value)}" for name, value in number.items()) or "none"
    words = {None: "not seen", True: "yes", False: "no"}
    return f"{number:.0f}" if isinstance(number, float) else str(words.get(number, number))


def observations(run: Emergence) -> list[Observation]:
    """Check the paper's four observations on a run."""
    arrivals = arrived(run)
    return [_first(run, arrivals), _reuse(run, arrivals), _order(run), _last(arrivals)]


def arrived(run: Emergence) -> Arrivals:
    """Return for every symbol number k the path that brings xk to the query, and the step at which xk arrives.

    The result is empty if the task is not a chain.
    """
    if not all(re.fullmatch(r"x[1-9]\d*", part) for part in run.validated):
        return {}
    layout = chain_layout(max(int(part[1:]) for part in run.validated))
    emerged = {path: step for path in run.circuit.paths if (step := run.emerged[str(path)]) is not None}
    arrivals: Arrivals = {}
    for step in sorted(set(emerged.values())):
        so_far = [path for path, first in emerged.items() if first <= step]
        for carried in circuit_flow(run.circuit, layout, only=so_far, replaced=True).carried:
            if carried.path.source == "query":
                for piece in carried.new - layout.places:
                    arrivals.setdefault(int(piece[1:]), (carried.path, step))
    return dict(sorted(arrivals.items()))


def _first(run: Emergence, arrivals: Arrivals) -> Observation:
    if 1 not in arrivals:
        return Observation(name="i")
    path, step = arrivals[1]
    attention = run.attention[str(path)]
    first = step < min((later for k, (_, later) in arrivals.items() if k > 1), default=math.inf)
    started = first_crossing(attention, RISE_FROM) or 0.0
    rise = step - started if started > min(attention) else None  # else it began before the first checkpoint
    lower = [p for p in run.circuit.paths if p.head.layer < path.head.layer and p.source in (path.target, "*")]
    beneath = {str(p): run.emerged[str(p)] for p in lower}
    numbers = {"path": str(path), "step": step, "epoch": step / STEPS_PER_EPOCH, "first": first, "rise": rise}
    holds = first and (None if rise is None else rise < QUICK * step)
    return Observation(name="i", holds=holds, numbers={**numbers, "beneath": beneath})


def _reuse(run: Emergence, arrivals: Arrivals) -> Observation:
    if not {1, 2} <= set(arrivals):
        return Observation(name="ii")
    (first, at), (second, then) = arrivals[1], arrivals[2]
    lag, above = then - at, second.head.layer > first.head.layer
    quick = above and 0 < lag < QUICK * at
    steps = pairwise(run.attention[str(second)])
    apart = float(min((after - before for before, after in steps if before <= then <= after), default=0))
    numbers = {"path": str(second), "lag": lag, "above": above, "between_checkpoints": apart}
    return Observation(name="ii", holds=None if quick and lag < apart else quick, numbers=numbers)


def _order(run: Emergence) -> Observation:
    steps = {part: first_below(curve, EMERGED) if curve else None for part, curve in run.validated.items()}
    if None in steps.values():
        return Observation(name="iii", holds=False, numbers={"steps": steps})
    seen = [next(step for step, loss in curve.items() if loss < EMERGED) for curve in run.validated.values()]
    *others, before, last = [0, 0, *seen]  # a single symbol has no order
    wrong, right = max(others) > before or before > last, max(others) < before < last  # neither: at one validation
    return Observation(name="iii", holds=False if wrong else right or None, numbers={"steps": steps})


def _last(arrivals: Arrivals) -> Observation:
    gaps = {f"x{k}": later - step for (_, (_, step)), (k, (_, later)) in pairwise(arrivals.items())}
    *before, last = [0.0, *gaps.values()]
    return Observation(name="iv", holds=last > max(before) if len(gaps) > 1 else None, numbers=gaps)

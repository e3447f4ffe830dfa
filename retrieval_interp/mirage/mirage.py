"""Is emergence a mirage of the metric (Schaeffer et al., 2023)? What jumps over training in which metric.

docs/protocol.md has the rules. depth_ways.py does the same over depth.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from circuits.utils.lazy import pandas as pd
from retrieval_interp.mirage.answer_metrics import CHAIN, METRICS, SQUARED, WEIGHT, WITHIN
from retrieval_interp.mirage.metric_curves import RunCurves
from retrieval_interp.mirage.rises import GRADUAL, JUMPS, KINDS, Rise, rise, value_at
from retrieval_interp.training.curves import Curve

EXACT = WITHIN[0.25]  # the discontinuous metric of the rule
CONTINUOUS = (SQUARED, WEIGHT)  # the continuous ones
MOST, FEW = 0.8, 0.2  # the shares of the cases for the decision
LEAST_CASES = 5
NOT_A_MIRAGE, A_MIRAGE, UNDECIDED = "not a mirage", "a mirage", "undecided"
GRADUAL_INSIDE, JUMP_INSIDE, MIXED, NO_PATHS = "gradual inside", "a jump inside, too", "mixed", "no path rises"
ATTENTION_METRIC, LOG_ODDS = "attention", "log-odds of attention"
ALL = "all"  # in the place of a slot
EDGE = 1e-4  # attention is kept so far from 0 and 1 for its log-odds


@dataclass(frozen=True)
class Risen:
    """The rise of one metric in one run.

    Attributes:
        run: the name of the run.
        of: a symbol, ``CHAIN``, or the name of a path.
        slot: the slot of the pair that holds the symbol, or ``ALL``.
        metric: the name of the metric.
        rise: the rise.
        foretold: the way that is gone when the output begins to rise: the first step at which a symbol's weight (in a
            stored log: squared error) does; None if none does.
    """

    run: str
    of: str
    slot: str
    metric: str
    rise: Rise
    foretold: float | None


def rises(run: RunCurves) -> list[Risen]:
    """Return the rise of every metric in a run of two steps or more: of the output, by slot, and of attention."""
    ways = {(of, ALL, metric): _way(run, curve, of, metric) for (of, metric), curve in run.output.items()}
    for (of, metric, slot), curve in run.by_slot.items():
        ways[of, str(slot), metric] = _way(run, curve, of, metric)
    ends: dict[str, float] = {}
    for path, attention in run.attention.items():
        ways[path, ALL, ATTENTION_METRIC] = _attention_way(attention)
        if (odds := log_odds_way(attention)) is not None:
            ways[path, ALL, LOG_ODDS] = odds
            ends[path] = 1.0
    found = {
        key: rise(curve, ends.get(key[0]) if key[2] == LOG_ODDS else None) for key, curve in ways.items()
    }  # fmt: skip
    output = WEIGHT if any(metric == WEIGHT for _, metric in run.output) else SQUARED
    begun = [
        one.begins
        for (_, slot, metric), one in found.items()
        if slot == ALL and metric == output and one.begins is not None
    ]
    return [
        Risen(run.name, of, slot, metric, one, value_at(ways[of, slot, metric], min(begun)) if begun else None)
        for (of, slot, metric), one in found.items()
    ]


def _way(run: RunCurves, curve: Curve, of: str, metric: str) -> Curve:
    return {step: METRICS[metric].way(value, run.task, of) for step, value in curve.items()}


def _attention_way(attention: Curve) -> Curve:
    """Return the way of attention from the first step to 1."""
    first = next(iter(attention.values()))
    return {step: (value - first) / max(EDGE, 1 - first) for step, value in attention.items()}


def log_odds_way(attention: Curve) -> Curve | None:
    """Return the way of the log-odds from the first step to even odds; None if the attention begins above 0.5."""
    odds = {step: math.log(a / (1 - a)) for step, a in ((s, min(max(v, EDGE), 1 - EDGE)) for s, v in attention.items())}
    first = next(iter(odds.values()))
    return None if first >= 0 else {step: 1 - value / first for step, value in odds.items()}


def cases(found: Sequence[Risen], slots: bool = False) -> list[tuple[str, str, str]]:
    """Return the run, the symbol and the slot of every case: exact match jumps.

    Args:
        found: the rises.
        slots: whether the cases are of single slots, instead of all slots together.
    """
    return [
        (one.run, one.of, one.slot)
        for one in found
        if (one.metric, one.rise.kind) == (EXACT, JUMPS) and (one.slot != ALL) == slots and one.of != CHAIN
    ]


def verdict(found: Sequence[Risen]) -> str:
    """Return ``not a mirage``, ``a mirage`` or ``undecided`` over training, by the rule in docs/protocol.md."""
    own = cases(found)
    if len(own) < LEAST_CASES:
        return UNDECIDED
    both = sum(all(_jumps(found, case, metric) for metric in CONTINUOUS) for case in own) / len(own)
    return NOT_A_MIRAGE if both >= MOST else A_MIRAGE if both <= FEW else UNDECIDED


def _jumps(found: Sequence[Risen], case: tuple[str, str, str], metric: str) -> bool:
    """Return whether a metric of a run, a symbol and a slot jumps."""
    return any((one.run, one.of, one.slot, one.metric, one.rise.kind) == (*case, metric, JUMPS) for one in found)


def compared_table(found: Sequence[Risen]) -> pd.DataFrame:
    """Return how long the rise of each metric takes beside that of the squared error, for the same run and symbol.

    There is a row for all slots together and for single slots. Columns: ``pairs``, the number of curves that rise, and
    are resolved, in both; ``shorter``, those in which the metric's rise takes fewer steps; ``ratio``, ``low`` and
    ``high``, the median, lowest and highest of the metric's steps over those of the squared error.
    """
    lengths = {
        (one.run, one.of, one.slot, one.metric): one.rise.ends - one.rise.begins
        for one in found
        if one.rise.kind in (JUMPS, GRADUAL) and one.rise.begins is not None and one.rise.ends is not None
    }
    rows = []
    for metric, single in product((name for name in METRICS if name != SQUARED), (False, True)):
        ratios = pd.Series(
            [
                length / lengths[run, of, slot, SQUARED]
                for (run, of, slot, name), length in lengths.items()
                if name == metric and (slot != ALL) == single and (run, of, slot, SQUARED) in lengths
            ],
            dtype=float,
        )
        row = {"metric": metric, "slots": "each" if single else "together", "pairs": len(ratios)}
        shorter = int((ratios < 1).sum())
        numbers = {"shorter": shorter, "ratio": ratios.median(), "low": ratios.min(), "high": ratios.max()}
        rows.append({**row, **numbers})
    return pd.DataFrame(rows)


def inside(found: Sequence[Risen], run: str) -> str:
    """Return whether a run's paths rise gradually in log-odds, by the rule in docs/protocol.md."""
    counted = Counter(one.rise.kind for one in found if (one.run, one.metric) == (run, LOG_ODDS))
    risen = counted[JUMPS] + counted[GRADUAL]
    if not risen:
        return NO_PATHS
    share = counted[GRADUAL] / risen
    return GRADUAL_INSIDE if share >= MOST else JUMP_INSIDE if share <= FEW else MIXED


def rises_table(found: Sequence[Risen]) -> pd.DataFrame:
    """Return one row for every run, symbol or path, slot and metric.

    Columns: ``kind``; ``begins`` and ``ends``, in steps; ``share``, the steps that the rise takes relative to those
    until its end; ``best``, the share of the way to perfect at the best step; ``foretold``, the share of the
    way that is gone when the output begins to rise.
    """
    return pd.DataFrame(
        {
            **{"run": one.run, "of": one.of, "slot": one.slot, "metric": one.metric, "kind": one.rise.kind},
            **{"begins": one.rise.begins, "ends": one.rise.ends, "share": one.rise.share, "best": one.rise.best},
            "foretold": one.foretold,
        }
        for one in found
    )


def counts_table(found: Sequence[Risen]) -> pd.DataFrame:
    """Return how often each metric jumps: one row for each metric, over all slots together and each slot alone.

    Columns: the number of curves of each kind, and the median, lowest and highest ``share`` of those that have risen.
    """
    rows = []
    keys = dict.fromkeys((one.metric, "together" if one.slot == ALL else "each", one.of == CHAIN) for one in found)
    for metric, slots, chain in keys:
        own = [
            one
            for one in found
            if (one.metric, "together" if one.slot == ALL else "each", one.of == CHAIN) == (metric, slots, chain)
        ]
        counted = Counter(one.rise.kind for one in own)
        shares = pd.Series([one.rise.share for one in own if one.rise.kind in (JUMPS, GRADUAL)], dtype=float)
        of = "path" if metric in (ATTENTION_METRIC, LOG_ODDS) else CHAIN if chain else "symbol"
        row = {"metric": metric, "of": of, "slots": slots, **{kind: counted[kind] for kind in KINDS}}
        rows.append({**row, "share": shares.median(), "low": shares.min(), "high": shares.max()})
    return pd.DataFrame(rows)


def sentences(runs: Sequence[RunCurves], found: Sequence[Risen]) -> list[str]:
    """Return the verdict over training, and a sentence for every run."""
    told = [f"Over training: {verdict(found)}. {_of_cases(found, False)} Split by slot: {_of_cases(found, True)}"]
    exact = {row["slots"]: row for row in compared_table(found).to_dict("records") if row["metric"] == EXACT}
    for slots, what in (("together", "symbols"), ("each", "symbols and single slots")):
        if (row := exact[slots])["pairs"]:
            told.append(
                f"The rise of exact match {EXACT} takes fewer steps than that of the squared error in "
                f"{row['shorter']} of {row['pairs']} {what}; at the median it takes {row['ratio']:.2f} times as many."
            )
    for run in runs:
        if not run.over_training:
            continue
        parts = []
        for symbol in run.task.loss_components:
            kinds = {one.metric: one.rise for one in found if (one.run, one.of, one.slot) == (run.name, symbol, ALL)}
            parts.append(f"{symbol}: " + ", ".join(f"{metric} {_said(kinds[metric])}" for metric in kinds))
        of_paths = [one for one in found if (one.run, one.metric) == (run.name, LOG_ODDS)]
        counted = Counter(one.rise.kind for one in of_paths)
        paths = ", ".join(f"{counted[kind]} {kind}" for kind in KINDS if counted[kind]) or "none"
        before = [one.foretold for one in of_paths if one.foretold is not None]
        gone = ""
        if before:
            gone = f"; when the output begins to rise, {median(before):.0%} of their way is gone, at the median"
        told.append(
            f"{run.name} ({run.source}): {'; '.join(parts)}. Paths, in log-odds: {paths} ({inside(found, run.name)})"
            f"{gone}."
        )
    return told


def _of_cases(found: Sequence[Risen], slots: bool) -> str:
    """Return the number of cases in words."""
    own = cases(found, slots)
    if not own:
        return f"Exact match {EXACT} jumps in no case."
    listed = ", ".join(f"the {name} jumps in {sum(_jumps(found, case, name) for case in own)}" for name in CONTINUOUS)
    return f"Exact match {EXACT} jumps in {len(own)} cases; of these, {listed}."


def _said(one: Rise) -> str:
    """Return a rise in words."""
    return one.kind if one.share is None else f"{one.kind} ({one.share:.0%})"

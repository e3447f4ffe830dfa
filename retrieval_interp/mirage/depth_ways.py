"""What jumps over depth in which metric: models of one task and recipe that differ in their number of layers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from circuits.utils.lazy import pandas as pd
from retrieval_interp.figure4.figure4 import family, has_curriculum
from retrieval_interp.mirage.answer_metrics import METRICS, SQUARED
from retrieval_interp.mirage.metric_curves import RunCurves
from retrieval_interp.mirage.mirage import A_MIRAGE, CONTINUOUS, EXACT, FEW, NOT_A_MIRAGE, UNDECIDED
from retrieval_interp.mirage.rises import BEGUN, DONE, GRADUAL, JUMPS
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.store import Result
from retrieval_interp.tasks.retrieval import RetrievalTask

LEAST_END = 0.1  # the least share of the models at either end of the way, for a jump
NOTHING = "shows nothing"


@dataclass(frozen=True)
class Way:
    """The way from a guess to a perfect answer that is gone at the end of training, in one metric.

    Attributes:
        group: the runs that differ in depth and seed alone, in words.
        n_layers: the number of layers.
        run: the run.
        of: the symbol, or ``chain``.
        metric: the name of the metric.
        gone: the share of the way.
    """

    group: str
    n_layers: int
    run: str
    of: str
    metric: str
    gone: float


def ways_of_runs(runs: Sequence[RunCurves]) -> list[Way]:
    """Return the ways of runs at their last step; only groups that have several depths."""
    keys = {run.name: json.dumps(run.recipe, sort_keys=True, default=str) for run in runs}
    found = []
    for number, key in enumerate(dict.fromkeys(keys.values()), start=1):
        own = [run for run in runs if keys[run.name] == key]
        if len({run.n_layers for run in own}) == 1:
            continue
        architecture = own[0].recipe["architecture"]
        steps = own[0].recipe["recipe"].get("steps")
        group = f"{number}: D = {own[0].task.n_steps}, heads {architecture['n_heads']}, width {architecture['d_model']}"
        group += f", {steps} steps" if steps else ""
        for run in own:
            for (of, metric), curve in run.output.items():
                gone = METRICS[metric].way([*curve.values()][-1], run.task, of)
                found.append(Way(group, run.n_layers, run.name, of, metric, gone))
    return found


def ways_of_sweep(results: Sequence[Result]) -> list[Way]:
    """Return the ways of the squared error of a sweep's runs with the implicit curriculum."""
    found = []
    for result in results:
        chosen = preset(result.preset)
        if isinstance(chosen.task, RetrievalTask) and has_curriculum(chosen) and not chosen.recipe.growing:
            where = f"sweep: {family(chosen)}", chosen.architecture.n_layers, f"{result.preset} seed {result.seed}"
            for symbol, loss in result.losses.items():
                found.append(Way(*where, symbol, SQUARED, METRICS[SQUARED].way(loss, chosen.task, symbol)))
    return found


def kind(ways: Sequence[Way]) -> str:
    """Return whether a metric jumps over depth, is gradual or shows nothing, by the rule in docs/protocol.md."""
    low, between, high = _shares(ways)
    if between > FEW:
        return GRADUAL
    return JUMPS if min(low, high) >= LEAST_END else NOTHING


def _shares(ways: Sequence[Way]) -> tuple[float, float, float]:
    """Return the shares of the ways of which less than 10% is gone, in between, and more than 90%."""
    low = sum(way.gone < BEGUN for way in ways) / len(ways)
    high = sum(way.gone > DONE for way in ways) / len(ways)
    return low, 1 - low - high, high


def depth_verdict(ways: Sequence[Way], group: str) -> str:
    """Return ``not a mirage``, ``a mirage`` or ``undecided`` for a group, by the rule in docs/protocol.md."""
    kinds = {row["metric"]: row["kind"] for row in depth_kinds(ways).to_dict("records") if row["group"] == group}
    if kinds.get(EXACT) != JUMPS or not set(CONTINUOUS) <= set(kinds):
        return UNDECIDED
    if all(kinds[metric] == JUMPS for metric in CONTINUOUS):
        return NOT_A_MIRAGE
    return A_MIRAGE if any(kinds[metric] == GRADUAL for metric in CONTINUOUS) else UNDECIDED


def depth_kinds(ways: Sequence[Way]) -> pd.DataFrame:
    """Return one row for every group and metric of single symbols.

    Columns: ``cases``, the number of models times symbols; ``low``, ``between`` and ``high``, the shares of them of
    which less than 10%, 10% to 90%, and more than 90% of the way is gone; ``kind``.
    """
    rows = []
    symbols = [way for way in ways if way.of.startswith("x")]
    for group, metric in dict.fromkeys((way.group, way.metric) for way in symbols):
        own = [way for way in symbols if (way.group, way.metric) == (group, metric)]
        low, between, high = _shares(own)
        row = {"group": group, "metric": metric, "cases": len(own), "low": low, "between": between, "high": high}
        rows.append({**row, "kind": kind(own)})
    return pd.DataFrame(rows, columns=["group", "metric", "cases", "low", "between", "high", "kind"])


def depth_table(ways: Sequence[Way]) -> pd.DataFrame:
    """Return one row for every group, symbol, metric and depth.

    Columns: ``runs``; ``median``, ``lowest`` and ``highest``, the share of the way that is gone; ``brought``, what this
    depth adds to the median of the next smaller one.
    """
    rows = []
    for group, of, metric in dict.fromkeys((way.group, way.of, way.metric) for way in ways):
        own = [way for way in ways if (way.group, way.of, way.metric) == (group, of, metric)]
        gone = {n: pd.Series([way.gone for way in own if way.n_layers == n]) for n in sorted({w.n_layers for w in own})}
        brought = {n: gone[n].median() - gone[before].median() for before, n in pairwise(gone)}
        for n_layers, each in gone.items():
            row = {"group": group, "of": of, "metric": metric, "layers": n_layers, "runs": len(each)}
            row |= {"median": each.median(), "lowest": each.min(), "highest": each.max()}
            rows.append({**row, "brought": brought.get(n_layers)})
    columns = ["group", "of", "metric", "layers", "runs", "median", "lowest", "highest", "brought"]
    return pd.DataFrame(rows, columns=columns)


def depth_sentences(ways: Sequence[Way]) -> list[str]:
    """Return a sentence for every group."""
    told, kinds, table = [], depth_kinds(ways), depth_table(ways)
    for group in dict.fromkeys(way.group for way in ways):
        rows = kinds[kinds["group"] == group].to_dict("records")
        listed = ", ".join(f"{row['metric']} {row['kind']} ({row['between']:.0%} in between)" for row in rows)
        own = table[(table["group"] == group) & table["of"].str.startswith("x")].dropna(subset=["brought"])
        most = max(own.to_dict("records"), key=lambda row: float(row["brought"]))
        layers = sorted({way.n_layers for way in ways if way.group == group})
        n_models = len({way.run for way in ways if way.group == group})
        told.append(
            f"Over depth, {group}, {layers[0]} to {layers[-1]} layers, {n_models} models: "
            f"{depth_verdict(ways, group)}. {listed}. The most that one step of depth adds to a median is "
            f"{most['brought']:.0%} of the way ({most['metric']} of {most['of']}, at {most['layers']} layers)."
        )
    return told

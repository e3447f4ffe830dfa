"""Figure 2 of the paper for any models, as a table and an offline page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.utils.lazy import pandas as pd
from retrieval_interp.llm.results import shown_steps
from retrieval_interp.prompts import FORMULATIONS, STEPS
from retrieval_interp.results import write_results

FILES = ("accuracy.csv", "accuracy.html")
COLOURS = plotly.colors.qualitative.Safe
OPTIONS = ("chains", "seed", "questions", "attempts", "max_tokens", "temperature")  # the options of asking a model
SYMBOLS = ("circle", "square", "diamond", "cross", "triangle-up", "x", "star", "hexagon")


def by_formulation(table: pd.DataFrame) -> pd.DataFrame:
    """Keep one row per series and formulation: the number of steps nearest to the paper's five, of two the larger."""
    distance = (table["steps"] - STEPS).abs().fillna(0)
    kept = table.assign(distance=distance, more=-table["steps"].fillna(0)).sort_values(["distance", "more"])
    return kept.drop_duplicates(["series", "formulation"]).drop(columns=["distance", "more"])


def with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Add a column ``series``: the name of the model, with those options that differ between rows."""
    differing = [option for option in OPTIONS if table[option].nunique(dropna=False) > 1]
    series = [
        ", ".join([row["model"], *(f"{o.replace('_', ' ')} {row[o]}" for o in differing)])
        for row in table.to_dict("records")
    ]
    return table.assign(series=series)


def accuracy_figure(table: pd.DataFrame) -> go.Figure:
    """Draw accuracy by formulation (left), and of equations by number of steps (right); chance is dashed."""
    figure = make_subplots(1, 2, subplot_titles=("by formulation", "equations, by number of steps"), shared_yaxes=True)
    table = with_series(table)
    single, equations = by_formulation(table), table[table["formulation"] == "equations"]
    kinds: dict[tuple[str, str, int], float] = {_kind(row): row["chance"] for row in single.to_dict("records")}
    order = sorted(kinds, key=lambda kind: (list(FORMULATIONS).index(kind[0]), -kinds[kind]))
    places = {kind: place for place, kind in enumerate(order)}
    every = list(dict.fromkeys(table["series"]))
    for number, series in enumerate(every):
        shift = 0.6 * ((number + 0.5) / len(every) - 0.5)  # series are side by side within a formulation
        marker = {"color": COLOURS[number % len(COLOURS)], "symbol": SYMBOLS[number % len(SYMBOLS)], "size": 10}
        shared = {"name": escape(series), "legendgroup": series, "marker": marker}  # plotly renders HTML in names
        own = single[single["series"] == series]
        left = [places[_kind(row)] + shift for row in own.to_dict("records")]
        figure.add_trace(_points(own, left, mode="markers", **shared), 1, 1)
        curve = equations[equations["series"] == series].sort_values("steps")
        figure.add_trace(
            _points(curve, [float(n) for n in curve["steps"]], mode="markers+lines", showlegend=False, **shared), 1, 2
        )
    chance = [(place - 0.4, place + 0.4, kinds[kind]) for kind, place in places.items()]
    figure.add_trace(_dashed(chance, showlegend=True), 1, 1)
    several = table["chains"].nunique() > 1
    labels = [_label(*kind, several) for kind in places]
    figure.update_xaxes(
        tickvals=[*places.values()], ticktext=labels, range=[-0.5, len(places) - 0.5], zeroline=False, col=1
    )
    if len(equations):
        levels = [
            (float(own["steps"].min()) - 0.4, float(own["steps"].max()) + 0.4, float(own["chance"].iloc[0]))
            for _, own in equations.groupby("chance")
        ]
        figure.add_trace(_dashed(levels, showlegend=False), 1, 2)
        figure.update_xaxes(title_text="number of steps D", tickvals=sorted(set(equations["steps"])), col=2)
    figure.update_yaxes(title_text="accuracy", range=[0, 1.05], col=1)
    return figure.update_layout(template="plotly_white", height=460, margin={"t": 50})


def _kind(row: dict[Any, Any]) -> tuple[str, str, int]:
    """Return the formulation, steps and chains of a row; each combination has its own place on the axis."""
    return row["formulation"], shown_steps(row["steps"]), row["chains"]


def _label(name: str, steps: str, chains: int, several: bool) -> str:
    sizes = [*([f"D = {steps}"] if steps else []), *([f"{chains} chains"] if several else [])]
    return "<br>".join([name.replace("_", "-"), *sizes])


def _points(rows: pd.DataFrame, x: list[float], **shared: Any) -> go.Scatter:
    errors = {
        "type": "data",
        "symmetric": False,
        "array": (rows["high"] - rows["accuracy"]).tolist(),
        "arrayminus": (rows["accuracy"] - rows["low"]).tolist(),
    }
    texts = [f"{row.right} of {row.asked}, {row.exhausted} without an acceptable answer" for row in rows.itertuples()]
    hover = "%{y:.3f}: %{text}<extra>%{fullData.name}</extra>"
    return go.Scatter(x=x, y=rows["accuracy"].tolist(), error_y=errors, text=texts, hovertemplate=hover, **shared)


def _dashed(levels: Sequence[tuple[float, float, float]], showlegend: bool) -> go.Scatter:
    """Draw dashed horizontal lines, each given as its first x, its last x and its y."""
    return go.Scatter(
        x=[x for first, last, _ in levels for x in (first, last, None)],
        y=[y for *_, level in levels for y in (level, level, None)],
        mode="lines",
        name="chance",
        showlegend=showlegend,
        line={"dash": "dash", "color": "#666666", "width": 2},
        hovertemplate="chance: %{y:.4f}<extra></extra>",
    )


def write_accuracy(table: pd.DataFrame, folder: Path, source: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Args:
        table: the table of ``results``.
        folder: the folder to write to.
        source: the command, or the source of the logs.

    Raises:
        BadInput: the folder cannot be written.
    """
    return write_results(
        folder,
        "accuracy",
        source,
        {"accuracy": table},
        {"accuracy": accuracy_figure(table)},
        rows=with_series(table).assign(steps=table["steps"].map(shown_steps)).to_dict("records"),
    )

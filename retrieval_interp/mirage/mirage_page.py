"""What jumps in which metric, over training and over depth, as one offline page with its tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.utils.lazy import pandas as pd
from retrieval_interp.mirage.answer_metrics import METRICS
from retrieval_interp.mirage.depth_ways import Way, depth_kinds, depth_sentences, depth_table
from retrieval_interp.mirage.metric_curves import RunCurves
from retrieval_interp.mirage.mirage import Risen, compared_table, counts_table, rises_table, sentences
from retrieval_interp.mirage.rises import KINDS
from retrieval_interp.results import write_results

FILES = ("curves.csv", "rises.csv", "counts.csv", "compared.csv", "depth.csv", "depth_kinds.csv", "mirage.html")
COLOURS = dict(zip(METRICS, plotly.colors.qualitative.Safe, strict=False))
ROW_HEIGHT = 190  # pixels


def training_figure(runs: Sequence[RunCurves]) -> go.Figure:
    """Draw one row for each run: a panel for each symbol with all metrics, then one with the attention of its paths.

    The metrics are drawn as the way from a guess (0) to a perfect answer (1).
    """
    own = [run for run in runs if run.over_training]
    symbols = max((run.task.loss_components for run in own), key=len, default=())
    titles = [title for run in own for title in (*(f"{run.name}, {symbol}" for symbol in symbols), "attention")]
    rows = max(1, len(own))
    figure = make_subplots(
        rows, len(symbols) + 1, subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=0.35 / rows,
    )  # fmt: skip
    for row, run in enumerate(own, start=1):
        for (of, metric), curve in run.output.items():
            if of in symbols:
                ways = [METRICS[metric].way(value, run.task, of) for value in curve.values()]
                line = go.Scatter(
                    x=[*curve], y=ways, name=metric, legendgroup=metric, line={"color": COLOURS[metric], "width": 1.5},
                    showlegend=(row, of) == (1, symbols[0]),
                    hovertemplate=f"{metric}, step %{{x}}: %{{y:.3f}}<extra></extra>",
                )  # fmt: skip
                figure.add_trace(line, row=row, col=symbols.index(of) + 1)
        for path, curve in run.attention.items():
            line = go.Scatter(
                x=[*curve], y=[*curve.values()], showlegend=False, line={"color": "#888888", "width": 1},
                hovertemplate=f"{path}, step %{{x}}: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
            figure.add_trace(line, row=row, col=len(symbols) + 1)
    figure.update_yaxes(range=[-0.1, 1.05])
    figure.update_annotations(font_size=11)
    return figure.update_layout(template="plotly_white", height=120 + ROW_HEIGHT * rows, margin={"t": 40})


def depth_figure(ways: Sequence[Way]) -> go.Figure:
    """Draw a panel for each group and symbol: a dot for each model and metric, at the way that is gone."""
    panels = [*dict.fromkeys((way.group, way.of) for way in ways if way.of.startswith("x"))]
    columns = max([len({of for g, of in panels if g == group}) for group, _ in panels], default=1)
    groups = [*dict.fromkeys(group for group, _ in panels)]
    titles = {(group, of): f"{of} ({group})" for group, of in panels}
    placed = {}
    for row, group in enumerate(groups, start=1):
        for column, of in enumerate([of for g, of in panels if g == group], start=1):
            placed[group, of] = row, column
    ordered = ["" for _ in range(max(1, len(groups)) * columns)]
    for panel, (row, column) in placed.items():
        ordered[(row - 1) * columns + column - 1] = titles[panel]
    figure = make_subplots(max(1, len(groups)), columns, subplot_titles=ordered, shared_yaxes=True)
    shown: set[str] = set()
    for place, metric in enumerate(METRICS):
        for (group, of), (row, column) in placed.items():
            own = [way for way in ways if (way.group, way.of, way.metric) == (group, of, metric)]
            dots = go.Scatter(
                x=[way.n_layers + 0.08 * (place - 2.5) for way in own], y=[way.gone for way in own], mode="markers",
                name=metric, legendgroup=metric, showlegend=bool(own) and metric not in shown,
                marker={"color": COLOURS[metric], "size": 8, "opacity": 0.7}, customdata=[way.run for way in own],
                hovertemplate=f"%{{customdata}}, {metric}: %{{y:.3f}}<extra></extra>",
            )  # fmt: skip
            figure.add_trace(dots, row=row, col=column)
            shown |= {metric} if own else set()
    figure.update_xaxes(title_text="layers", dtick=1)
    figure.update_annotations(font_size=11)
    return figure.update_layout(template="plotly_white", height=100 + 260 * max(1, len(groups)), margin={"t": 50})


def curves_table(runs: Sequence[RunCurves]) -> pd.DataFrame:
    """Return one row for every run and step, with a column for every symbol and metric that a run has."""
    rows = []
    for run in runs:
        for step in next(iter(run.output.values())):
            row = {f"{of} {metric}": curve[step] for (of, metric), curve in run.output.items()}
            rows.append({"run": run.name, "step": step, **row})
    return pd.DataFrame(rows)


def write_mirage(
    runs: Sequence[RunCurves], found: Sequence[Risen], ways: Sequence[Way], folder: Path, command: str
) -> Path:
    """Write the page and its tables, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    kinds, counts = depth_kinds(ways), counts_table(found)
    tables = {"curves": curves_table(runs).round(4), "rises": rises_table(found).round(4), "counts": counts.round(4)}
    tables["compared"] = compared_table(found).round(4)
    tables |= {"depth": depth_table(ways).round(4), "depth_kinds": kinds.round(4)}
    return write_results(
        folder, "mirage", command, tables, {"training": training_figure(runs), "depth": depth_figure(ways)},
        told=[*sentences(runs, found), *depth_sentences(ways)], counts=counts, compared=tables["compared"],
        depth_kinds=kinds, kinds=KINDS,
        rises=len(found), ways=len(ways),
    )  # fmt: skip

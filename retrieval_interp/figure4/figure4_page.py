"""Figure 4 of the paper for the runs of a sweep, as tables and an offline page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.utils.lazy import pandas as pd
from retrieval_interp.figure4.figure4 import ALL, FAILED, family, figure4_sentences, hop, table
from retrieval_interp.models.presets import preset
from retrieval_interp.results import write_results
from retrieval_interp.sweep.runs_table import runs_table
from retrieval_interp.sweep.store import LEARNED, Result
from retrieval_interp.theory.depth import layers_causal

FILES = ("figure4.csv", "runs.csv", "figure4.html")
COLOURS = plotly.colors.qualitative.Safe


def figure4_losses(results: Sequence[Result]) -> go.Figure:
    """Draw figure 4, left: the final validation loss by number of layers, with a line per family and a dot per run.

    A family is a task, at every depth. Vertical lines mark the minimum number of layers for all symbols that are asked
    for, by information flow; they are drawn just left of it.
    """
    rows = table(results)
    figure = make_subplots(1, 1)
    for place, name in enumerate(dict.fromkeys(rows["family"])):
        own = [result for result in results if family(preset(result.preset)) == name]
        means = rows[(rows["family"] == name) & (rows["symbol"] == ALL)]
        _add(figure, name, place, [(_layers(result), result.loss) for result in own], means, column=1)
        furthest = max(hop(symbol) for result in own for symbol in result.losses)
        line = {"color": COLOURS[place % len(COLOURS)], "width": 1}
        figure.add_vline(x=layers_causal(furthest) - 0.3 + 0.05 * place, line=line)
    figure.add_hline(y=FAILED, line={"color": "#999999", "dash": "dash", "width": 1})
    return _styled(figure)


def figure4_components(results: Sequence[Result]) -> go.Figure:
    """Draw figure 4, right: the loss of every symbol, in a panel for each family that is asked for several symbols.

    Vertical lines mark the minimum number of layers for a symbol, by information flow; they are drawn just left of it.
    """
    rows = table(results)
    several = [name for name in dict.fromkeys(rows["family"]) if rows[rows["family"] == name]["symbol"].nunique() > 2]
    figure = make_subplots(1, max(1, len(several)), subplot_titles=several, shared_yaxes=True)
    for column, name in enumerate(several, start=1):
        own = [result for result in results if family(preset(result.preset)) == name]
        for symbol in own[0].losses:
            means = rows[(rows["family"] == name) & (rows["symbol"] == symbol)]
            dots = [(_layers(result), result.losses[symbol]) for result in own]
            _add(figure, symbol, hop(symbol) - 1, dots, means, column)
            line = {"color": COLOURS[(hop(symbol) - 1) % len(COLOURS)], "width": 1}
            figure.add_vline(x=layers_causal(hop(symbol)) - 0.3 + 0.05 * hop(symbol), line=line, row=1, col=column)
    return _styled(figure)


def _add(
    figure: go.Figure,
    name: str,
    place: int,
    dots: Sequence[tuple[int, float]],
    means: pd.DataFrame,
    column: int,
) -> None:
    """Add a line of means and a dot for every run."""
    colour, shift = COLOURS[place % len(COLOURS)], 0.06 * place
    shared = {"legendgroup": name, "marker": {"color": colour, "symbol": place, "size": 8}}
    figure.add_trace(
        go.Scatter(
            x=[layers + shift for layers, _ in dots], y=[loss for _, loss in dots], mode="markers", name=name,
            showlegend=column == 1, hovertemplate=f"{name}: %{{y:.4f}}<extra></extra>", **shared,
        ),
        row=1,
        col=column,
    )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=means["layers"] + shift, y=means["loss"], mode="lines", line={"color": colour}, showlegend=False,
            hoverinfo="skip", legendgroup=name,
        ),
        row=1,
        col=column,
    )  # fmt: skip


def _styled(figure: go.Figure) -> go.Figure:
    figure.update_xaxes(title_text="layers", dtick=1)
    figure.update_yaxes(title_text="squared error", rangemode="tozero", col=1)
    figure.update_yaxes(rangemode="tozero")
    return figure.update_layout(template="plotly_white", height=420, margin={"t": 50})


def _layers(result: Result) -> int:
    return preset(result.preset).architecture.n_layers


def write_figure4(results: Sequence[Result], folder: Path, command: str) -> Path:
    """Write the tables and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    rows = table(results)
    return write_results(
        folder,
        "figure4",
        command,
        {"figure4": rows, "runs": runs_table(results)},
        {"losses": figure4_losses(results), "components": figure4_components(results)},
        learned=LEARNED,
        sentences=figure4_sentences(results),
        table=rows,
    )

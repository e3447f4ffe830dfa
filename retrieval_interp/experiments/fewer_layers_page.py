"""The models with one layer fewer than information flow asks for, as a table and one offline page."""

from collections.abc import Sequence
from pathlib import Path

import plotly.graph_objects as go

from circuits.utils.lazy import pandas as pd
from retrieval_interp.experiments.depth_sweep import LEARNED, NOTHING_KNOWN
from retrieval_interp.experiments.fewer_layers import Outcome
from retrieval_interp.experiments.fewer_layers_rules import rows, sentences
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.results import write_results

FILES = (RUNS, "fewer_layers.csv", "fewer_layers.html")


def fewer_layers_figure(outcomes: Sequence[Outcome]) -> go.Figure:
    """Draw the loss of the symbol in question: a row for each condition, a dot for each run.

    Dots are filled if the first layer fetches all pairs by position. A bar is the least loss by the number of heads.
    """
    figure = go.Figure()
    for by_position, name in ((True, "all pairs fetched by position"), (False, "not all")):
        own = [run for run in outcomes if run.by_position == by_position]
        figure.add_scatter(
            x=[run.loss for run in own],
            y=[run.model for run in own],
            mode="markers",
            name=name,
            marker={"size": 9, "color": "#1f77b4", "symbol": "circle" if by_position else "circle-open"},
            text=[f"seed {run.seed}" for run in own],
            hovertemplate="%{text}: %{x:.3f}<extra></extra>",
        )
    bounds = {row["model"]: row["bound"] for row in rows(outcomes)}
    figure.add_scatter(
        x=[bound for bound in bounds.values() if bound is not None],
        y=[model for model, bound in bounds.items() if bound is not None],
        mode="markers",
        name="least loss by the number of heads, one layer",
        marker={"symbol": "line-ns", "size": 16, "line": {"width": 2, "color": "#d62728"}},
        hovertemplate="%{x:.3f}<extra></extra>",
    )
    figure.add_vline(x=LEARNED, line={"color": "#999999", "dash": "dash", "width": 1})
    figure.update_xaxes(title_text="squared error of the symbol in question", rangemode="tozero")
    figure.update_yaxes(categoryorder="array", categoryarray=[*bounds][::-1], automargin=True)
    legend = {"orientation": "h", "y": 1.02, "yanchor": "bottom"}
    return figure.update_layout(template="plotly_white", height=160 + 28 * len(bounds), legend=legend)


def write_fewer_layers(outcomes: Sequence[Outcome], folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    found = rows(outcomes)
    return write_results(
        folder,
        "fewer_layers",
        command,
        {"fewer_layers": pd.DataFrame(found)},
        {"fewer_layers": fewer_layers_figure(outcomes)},
        learned=LEARNED,
        nothing=NOTHING_KNOWN,
        sentences=sentences(outcomes),
        table=found,
    )

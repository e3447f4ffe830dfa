"""Figure 6, figure 7 (right) and Appendix D of the paper, for any run, as one offline page with CSV tables."""

from __future__ import annotations

from pathlib import Path

import plotly.colors
from plotly.subplots import make_subplots

from circuits.utils.lazy import pandas as pd
from circuits.utils.plotting import go
from retrieval_interp.experiments.emergence import Emergence
from retrieval_interp.experiments.observations import observations
from retrieval_interp.models.model_dir import ATTENTION
from retrieval_interp.results import write_results
from retrieval_interp.training.curves import EMERGED

FILES = ("emergence.html", ATTENTION, "emergence.csv", "losses.csv")
COLUMNS = 4


def loss_figure(run: Emergence) -> go.Figure:
    """Draw figure 6: training loss, validation loss and partial validation losses over the steps."""
    figure = make_subplots(1, 2, subplot_titles=["loss", "partial losses, validation"], shared_yaxes=True)
    curves = [
        (run.losses["loss"], "training", 1, "lines"),
        (run.losses["validation"], "validation", 1, "lines+markers"),
    ]
    curves += [(curve, part, 2, "lines") for part, curve in run.validated.items()]
    colours = plotly.colors.qualitative.Safe
    for place, (values, name, column, mode) in enumerate(curves):
        figure.add_trace(
            go.Scatter(
                x=[*values],
                y=[*values.values()],
                name=name,
                mode=mode,
                line={"color": colours[place % len(colours)]},
                hovertemplate=f"{name}, step %{{x}}: %{{y:.4f}}<extra></extra>",
            ),
            row=1,
            col=column,
        )
    figure.add_hline(y=EMERGED, line_dash="dash", line_width=1, row=1, col=2)
    figure.update_xaxes(title_text="step")
    figure.update_yaxes(title_text="mean squared error", rangemode="tozero", col=1)
    figure.update_layout(template="plotly_white", height=360, margin={"t": 40})
    return figure


def emerged_figure(run: Emergence) -> go.Figure:
    """Draw figure 7, right: the step at which each path emerged, with the lowest layer at the bottom."""
    emerged = {path: step for path, step in run.emerged.items() if step is not None}
    figure = go.Figure(
        go.Scatter(
            x=list(emerged.values()),
            y=list(emerged),
            mode="markers",
            marker={"size": 11},
            hovertemplate="%{y}: step %{x:.0f}<extra></extra>",
        )
    )
    figure.update_layout(
        xaxis={"title": f"first step with an average attention above {EMERGED:g}"},
        yaxis={"categoryorder": "array", "categoryarray": list(run.emerged)},
        template="plotly_white",
        height=140 + 28 * len(run.emerged),
        margin={"l": 260, "t": 20},
    )
    return figure


def path_figure(run: Emergence) -> go.Figure:
    """Draw Appendix D: one small plot for each path, with its average attention over the steps."""
    paths = list(run.attention)
    columns = min(COLUMNS, len(paths))
    rows = -(-len(paths) // columns)
    figure = make_subplots(
        rows,
        columns,
        subplot_titles=paths,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=min(0.12, 0.4 / rows),
    )
    for place, path in enumerate(paths):
        curve = go.Scatter(
            x=[*run.attention[path]],
            y=[*run.attention[path].values()],
            mode="lines",
            line={"color": plotly.colors.qualitative.Safe[1]},
            showlegend=False,
            hovertemplate="step %{x}: %{y:.3f}<extra></extra>",
        )
        figure.add_trace(curve, row=place // columns + 1, col=place % columns + 1)
    figure.add_hline(y=EMERGED, line_dash="dash", line_width=1)
    figure.update_annotations(font_size=11)
    figure.update_yaxes(range=[0, 1])
    figure.update_layout(template="plotly_white", height=90 + 170 * rows, margin={"t": 40})
    return figure


FIGURES = {"paths": path_figure, "emerged": emerged_figure, "losses": loss_figure}


def write_emergence(run: Emergence, name: str, folder: Path, measured: str, followed: str) -> Path:
    """Write the page and the tables together, and return the path of the page.

    Args:
        run: the result of ``emergence``.
        name: the name of the transformer.
        folder: the folder for the files.
        measured: the command that measures all possible paths; it does not depend on the circuit.
        followed: the same command with the circuit whose paths were followed.

    Raises:
        BadInput: the folder cannot be written.
    """
    attention, losses = (pd.DataFrame(curves).rename_axis("step") for curves in (run.all_paths, run.losses))
    return write_results(
        folder,
        "emergence",
        followed,
        {"attention": attention.round(4), "emergence": run.table().round(3), "losses": losses},
        {name: figure(run) for name, figure in FIGURES.items()},
        {"attention": measured, "losses": measured},
        name=name,
        run=run,
        observations=observations(run),
    )

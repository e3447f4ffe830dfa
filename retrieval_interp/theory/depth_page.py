"""The number of layers that the retrieval problem needs, as a table and one offline page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import plotly.graph_objects as go

from circuits.utils.lazy import pandas as pd
from retrieval_interp.results import write_results
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.depth import Depth
from retrieval_interp.theory.flow_figure import sharing_figure, spread_figure
from retrieval_interp.theory.grid import Cell, Grid
from retrieval_interp.theory.grid_figure import grid_figure

FILES = ("depth.csv", "depth.html")
MOST_DRAWN = 12  # the largest D of the chain that is drawn; larger ones would be too small to read


def depth_figure(rows: Sequence[Depth]) -> go.Figure:
    """Draw the number of layers by the number of hops: the paper's bound and the exact numbers."""
    figure = go.Figure()
    lines = {
        "bound_paper": ("the paper's bound, log3(2D)", "dot"),
        "layers_full": ("without a mask", "dash"),
        "layers_causal": ("with the causal mask", "solid"),
        "layers_by_position": ("with the causal mask, pairs fetched by position", "dashdot"),
    }
    ordered = sorted(rows)
    gaps = any(then.hops - one.hops > 1 for one, then in pairwise(ordered))  # lines across gaps would mislead
    for column, (name, dash) in lines.items():
        figure.add_trace(
            go.Scatter(
                x=[row.hops for row in ordered],
                y=[getattr(row, column) for row in ordered],
                name=name,
                mode="markers" if gaps else "lines+markers" if len(ordered) < 30 else "lines",
                line={"dash": dash, "shape": "linear" if column == "bound_paper" else "hv"},
                hovertemplate="D = %{x}: %{y:.3g}<extra>" + name + "</extra>",
            )
        )
    figure.update_xaxes(title_text="hops D", type="log")
    figure.update_yaxes(title_text="layers", rangemode="tozero", tickformat="d")
    return figure.update_layout(template="plotly_white", height=420, margin={"t": 30}, legend={"x": 0.02, "y": 0.98})


def write_depth(rows: Sequence[Depth], folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    drawn = int(min(MOST_DRAWN, max(row.hops for row in rows)))
    layout = chain_layout(drawn)
    order = ["query", *(f"pair{k}.{which}" for k in range(1, drawn + 1) for which in ("first", "second"))]
    figures = {
        "depth": depth_figure(rows),
        "sharing": sharing_figure(layout, order),
        "causal": spread_figure(layout, order, causal=True),
        "full": spread_figure(layout, order, causal=False),
        "pass": grid_figure(Grid(n_prompt=5, n_layers=2), Cell(0, 1)),
        "written": grid_figure(Grid(n_prompt=1, n_layers=2, n_written=4), Cell(0, 1)),
    }
    return write_results(
        folder,
        "depth",
        command,
        {"depth": pd.DataFrame(rows)},
        figures,
        drawn=drawn,
        rows=rows,
    )

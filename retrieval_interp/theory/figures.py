"""Figures of the number of layers that D hops need, and of information flow, and one offline page with both."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import plotly.colors
import plotly.express as px
import plotly.graph_objects as go

from circuits.task import Layout
from circuits.utils.lazy import pandas as pd
from retrieval_interp.results import write_page
from retrieval_interp.theory.chain_layout import chain_layout
from retrieval_interp.theory.depth import Depth
from retrieval_interp.theory.information_flow import spread

MOST_DRAWN = 12  # the largest D of the chain that is drawn; larger ones would be too small to read
ABOUT = (
    "These numbers follow from two assumptions (paper, section 5). A position can attend to another position only if "
    "they share a piece of information. It then takes all pieces from there. A model can break the first assumption: "
    "if the members of a pair are neighbours at fixed positions, heads can fetch pairs by position, and an MLP can "
    "compare them. This saves one layer (last column)."
)


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
        figure.add_scatter(
            x=[row.hops for row in ordered],
            y=[getattr(row, column) for row in ordered],
            name=name,
            mode="markers" if gaps else "lines+markers" if len(ordered) < 30 else "lines",
            line={"dash": dash, "shape": "linear" if column == "bound_paper" else "hv"},
            hovertemplate="D = %{x}: %{y:.3g}<extra>" + name + "</extra>",
        )
    figure.update_xaxes(title_text="hops D", type="log")
    figure.update_yaxes(title_text="layers", rangemode="tozero", tickformat="d")
    return figure.update_layout(template="plotly_white", height=420, margin={"t": 30}, legend={"x": 0.02, "y": 0.98})


def spread_figure(layout: Layout, order: Sequence[str], *, causal: bool) -> go.Figure:
    """Draw the pieces that every position knows, with a slider over the layers.

    Args:
        layout: the positions and the pieces that they start with.
        order: the order of the rows.
        causal: whether a position sees only itself and those before it.
    """
    pieces = list(dict.fromkeys(piece for role in order for piece in sorted(layout.start[role])))
    states = spread(layout, causal=causal)
    known = np.array([[[piece in state[role] for piece in pieces] for role in order] for state in states], dtype=int)
    known[1:] += known[1:] > known[:-1]  # 0: not known, 1: known, 2: new
    figure = px.imshow(
        known,
        x=pieces,
        y=[*order],
        zmin=0,
        zmax=2,
        animation_frame=0,
        aspect="auto",
        color_continuous_scale=["#f2f2f2", plotly.colors.qualitative.Safe[0], "black"],
        labels={"x": "piece of information", "animation_frame": "after layer"},
        title=f"What every position knows, {'with the causal mask' if causal else 'without a mask'} (black: new)",
    )
    figure.update_traces(xgap=2, ygap=2, hovertemplate="%{y}, %{x}: %{z}<extra>0: not known, 1: known, 2: new</extra>")
    figure.update_xaxes(side="top")
    size = {"height": 280 + 24 * len(order), "margin_t": 130}
    return figure.update_layout(coloraxis_showscale=False, template="plotly_white", **size)


def write_depth(rows: Sequence[Depth], folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page; BadInput if the folder cannot be written."""
    drawn = int(min(MOST_DRAWN, max(row.hops for row in rows)))
    order = ["query", *(f"pair{k}.{which}" for k in range(1, drawn + 1) for which in ("first", "second"))]
    figures = {
        "depth": depth_figure(rows),
        "causal": spread_figure(chain_layout(drawn), order, causal=True),
        "full": spread_figure(chain_layout(drawn), order, causal=False),
    }
    return write_page(
        folder / "depth.html", "How many layers do D hops need?", ABOUT, command, figures, pd.DataFrame(rows)
    )

"""When each symbol can be read at the query, as a table and one offline page."""

from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.files import write_together
from circuits.page import figure_element, render_page
from circuits.soundness import Soundness
from retrieval_interp.arrival import Arrival

CSV, PAGE = "arrival.csv", "arrival.html"
FILES = (CSV, PAGE)
TITLES = {"own": "the model's own readout", "ridge": "ridge regression, fitted on other examples"}


def arrival_figure(read: Arrival, flow: Soundness | None) -> go.Figure:
    """Layer by symbol, one heat map for each readout; a ring marks the layer that information flow predicts."""
    figure = make_subplots(1, len(TITLES), subplot_titles=list(TITLES.values()), shared_yaxes=True)
    for column, name in enumerate(TITLES, start=1):
        errors = getattr(read, name)
        heat = go.Heatmap(
            z=errors.clamp(max=1).tolist(), x=list(read.parts), y=["before", *map(str, range(len(errors) - 1))],
            zmin=0, zmax=1, coloraxis="coloraxis", customdata=errors.tolist(),
            hovertemplate="%{x} after layer %{y}: %{customdata:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
        there = {part: layer for part, layer in flow.arrivals.items() if layer is not None} if flow else {}
        ring = go.Scatter(
            x=list(there), y=[str(layer) for layer in there.values()], mode="markers", name="predicted by flow",
            marker={"symbol": "circle-open", "size": 18, "color": "black", "line": {"width": 3}},
            showlegend=column == 1, hovertemplate="flow: %{x} with layer %{y}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(ring, row=1, col=column)
    figure.update_yaxes(title_text="layer", col=1, type="category")
    return figure.update_layout(
        coloraxis={"colorscale": "Blues_r", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "MSE"}}},
        template="plotly_white",
        height=180 + 26 * len(read.own),
        legend={"orientation": "h", "y": 1.16, "x": 0},
    )


def write_arrival(read: Arrival, flow: Soundness | None, name: str, folder: Path, command: str) -> Path:
    """Write the table and the page; returns the page's path.

    Raises:
        BadInput: the folder cannot be written.
    """
    page = render_page(
        "arrival.html.jinja",
        "retrieval_interp",
        name=name,
        command=command,
        parts=read.parts,
        flow=flow.arrivals if flow else None,
        own=read.layers("own"),
        ridge=read.layers("ridge"),
        figure=figure_element(arrival_figure(read, flow), "arrival"),
    )
    table = read.table().to_csv(index=False, float_format="%.4g")
    write_together({folder / CSV: f"# {command}\n{table}", folder / PAGE: page})
    return folder / PAGE

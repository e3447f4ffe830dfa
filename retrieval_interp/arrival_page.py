"""When each symbol can be read at the query, as a table and one offline page."""

from collections.abc import Mapping
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


def arrival_figure(read: Arrival, flow: Soundness | None, earliest: Mapping[str, int | None]) -> go.Figure:
    """Layer by symbol, one heat map for each readout; a ring marks the layer that information flow predicts.

    A small dot marks the ``earliest`` layer that flow allows.
    """
    figure = make_subplots(1, len(TITLES), subplot_titles=list(TITLES.values()), shared_yaxes=True)
    for column, name in enumerate(TITLES, start=1):
        errors = getattr(read, name)
        heat = go.Heatmap(
            z=errors.clamp(max=1).tolist(), x=list(read.parts), y=["before", *map(str, range(len(errors) - 1))],
            zmin=0, zmax=1, coloraxis="coloraxis", customdata=errors.tolist(),
            hovertemplate="%{x} after layer %{y}: %{customdata:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
        marks = {
            "predicted by flow along the circuit": (flow.arrivals if flow else {}, "circle-open", 18),
            "possible by flow": (earliest, "circle", 6),
        }
        for said, (layers, symbol, size) in marks.items():
            there = {part: str(layer) for part, layer in layers.items() if layer is not None}
            marked = go.Scatter(
                x=list(there), y=list(there.values()), mode="markers", name=said,
                showlegend=column == 1 and bool(there),
                marker={"symbol": symbol, "size": size, "color": "#d95f02", "line": {"width": 3}},
                hovertemplate=f"{said}: %{{x}} with layer %{{y}}<extra></extra>",
            )  # fmt: skip
            figure.add_trace(marked, row=1, col=column)
    figure.update_yaxes(title_text="layer", col=1, type="category")
    return figure.update_layout(
        coloraxis={"colorscale": "Blues_r", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "MSE"}}},
        template="plotly_white",
        height=180 + 26 * len(read.own),
        legend={"orientation": "h", "y": 1.16, "x": 0},
    )


def write_arrival(
    read: Arrival,
    flow: Soundness | None,
    earliest: Mapping[str, int | None],
    name: str,
    folder: Path,
    command: str,
) -> Path:
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
        layers=(earliest, flow.arrivals if flow else {}, read.layers("own"), read.layers("ridge")),
        figure=figure_element(arrival_figure(read, flow, earliest), "arrival"),
    )
    table = read.table().to_csv(index=False, float_format="%.4g")
    write_together({folder / CSV: f"# {command}\n{table}", folder / PAGE: page})
    return folder / PAGE

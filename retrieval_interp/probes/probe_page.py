"""The errors of the probes by layer and symbol, as a table and one offline page."""

from collections.abc import Mapping
from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.flow.flow_check import FlowCheck
from retrieval_interp.probes.probe import READOUTS, Probes
from retrieval_interp.probes.role_probes import RoleProbes
from retrieval_interp.results import write_results

FILES = ("probe.csv", "probe.html")
TITLES = {"logit_lens": "logit lens", "linear_probe": "linear probe, fitted on other examples"}


def probe_figure(read: Probes, flow: FlowCheck | None, earliest: Mapping[str, int | None]) -> go.Figure:
    """Draw one heat map for each readout, layer by symbol.

    A ring marks the layer that the flow check of the circuit predicts. A small dot marks the earliest layer that
    information flow allows for any circuit.
    """
    figure = make_subplots(1, len(TITLES), subplot_titles=list(TITLES.values()), shared_yaxes=True)
    for column, name in enumerate(TITLES, start=1):
        errors = getattr(read, name)
        heat = go.Heatmap(
            z=errors.clamp(max=1).tolist(), x=list(read.symbols), y=["before", *map(str, range(len(errors) - 1))],
            zmin=0, zmax=1, coloraxis="coloraxis", customdata=errors.tolist(),
            hovertemplate="%{x} after layer %{y}: %{customdata:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
        marks = {
            "predicted by the flow check": (flow.known_at if flow else {}, "circle-open", 18),
            "possible by information flow": (earliest, "circle", 6),
        }
        for label, (layers, symbol, size) in marks.items():
            known = {component: str(layer) for component, layer in layers.items() if layer is not None}
            marked = go.Scatter(
                x=list(known), y=list(known.values()), mode="markers", name=label,
                showlegend=column == 1 and bool(known),
                marker={"symbol": symbol, "size": size, "color": "#d95f02", "line": {"width": 3}},
                hovertemplate=f"{label}: %{{x}} after layer %{{y}}<extra></extra>",
            )  # fmt: skip
            figure.add_trace(marked, row=1, col=column)
    figure.update_yaxes(title_text="layer", col=1, type="category")
    return figure.update_layout(
        coloraxis={"colorscale": "Blues_r", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "MSE"}}},
        template="plotly_white",
        height=180 + 26 * len(read.logit_lens),
        legend={"orientation": "h", "y": 1.16, "x": 0},
    )


def role_figure(read: RoleProbes) -> go.Figure:
    """Draw one heat map of roles and layers for each piece: symbols above, places below."""
    columns = len(read.pieces) // 2
    figure = make_subplots(
        2, columns, subplot_titles=read.pieces, shared_xaxes=True, shared_yaxes=True,
        horizontal_spacing=0.02, vertical_spacing=0.16,
    )  # fmt: skip
    layers = ["before", *map(str, range(len(read.errors) - 1))]
    for index, piece in enumerate(read.pieces):
        errors = read.errors[:, :, index]
        heat = go.Heatmap(
            z=errors.clamp(max=1).tolist(), x=list(read.roles), y=layers, coloraxis="coloraxis",
            customdata=errors.tolist(),
            hovertemplate=f"{piece} at %{{x}} after layer %{{y}}: %{{customdata:.3f}}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=index // columns + 1, col=index % columns + 1)
    figure.update_yaxes(type="category")
    figure.update_yaxes(title_text="layer", col=1)
    return figure.update_layout(
        coloraxis={"colorscale": "Blues_r", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "relative error"}}},
        template="plotly_white",
        height=240 + 36 * len(layers),
        margin={"t": 40, "b": 60},
    )


def write_probe(
    read: Probes, flow: FlowCheck | None, earliest: Mapping[str, int | None], name: str, folder: Path, command: str
) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    return write_results(
        folder,
        "probe",
        command,
        {"probe": read.table().round(5)},
        {"probe": probe_figure(read, flow, earliest)},
        name=name,
        symbols=read.symbols,
        layers=(earliest, flow.known_at if flow else {}, *map(read.layers, READOUTS)),
    )

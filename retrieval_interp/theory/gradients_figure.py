"""Gradients between the cells of a transformer's grid, as a heat map with a slider."""

from collections.abc import Sequence

import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

FAINTEST = -6.0  # decimal logarithm; smaller values have the same colour


def gradients_figure(
    gradients: Float[Tensor, "to_layer to_pos from_layer from_pos"], labels: Sequence[str]
) -> go.Figure:
    """Draw the gradient of the final residual stream at one position with respect to every cell.

    A slider chooses the position. Cells with a gradient of zero are empty.
    """
    n_layers, n_positions = gradients.shape[2:]
    rows = ["before", *map(str, range(n_layers - 1))]
    columns = [f"{place} {label}" for place, label in enumerate(labels)]
    frames = []
    for end in range(n_positions):
        own = gradients[-1, end]
        log = own.log10().clamp(min=FAINTEST)
        z = [[value if nonzero else None for value, nonzero in zip(*pair, strict=True)]
             for pair in zip(log.tolist(), (own > 0).tolist(), strict=True)]  # fmt: skip
        heat = go.Heatmap(
            z=z, x=columns, y=rows, coloraxis="coloraxis", customdata=own.tolist(),
            hovertemplate=f"from %{{x}}, layer %{{y}}, to {columns[end]}: %{{customdata:.3g}}<extra></extra>",
        )  # fmt: skip
        frames.append(go.Frame(data=[heat], name=columns[end]))
    at_once = {"mode": "immediate", "frame": {"duration": 0}}
    steps = [{"label": frame.name, "method": "animate", "args": [[frame.name], at_once]} for frame in frames]
    figure = go.Figure(data=frames[-1].data, frames=frames)
    slider = {"steps": steps, "active": n_positions - 1, "currentvalue": {"prefix": "end: "}, "pad": {"t": 90}}
    return figure.update_layout(
        title={"text": "Gradient of the final residual stream at one position, by position and layer"},
        coloraxis={"colorscale": "Viridis", "cmin": FAINTEST, "cmax": 1, "colorbar": {"title": {"text": "log10"}}},
        yaxis={"title": "layer", "type": "category"},
        sliders=[slider],
        template="plotly_white",
        height=320 + 22 * n_layers,
    )

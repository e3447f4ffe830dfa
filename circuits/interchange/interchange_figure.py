"""Heat maps of interchange accuracy: one row of maps for each variable, one column for each loss component."""

import torch
from plotly.subplots import make_subplots

from circuits.interchange.interchange_result import RANDOM, UNDECIDED, InterchangeResult
from circuits.utils.plotting import go


def interchange_figure(result: InterchangeResult, control: bool = False) -> go.Figure:
    """Plot roles across, the random positions last, and layers upwards.

    A ring marks a cell in which the circuit's paths carry the variable.

    Args:
        result: the result.
        control: whether to plot the share of the other instances that keep their own answer.
    """
    measured, label, columns = result.control, "own answer kept", result.roles
    if not control:
        measured = torch.cat([result.accuracy, result.random[:, :, None]], dim=2)
        label, columns = "accuracy", (*result.roles, RANDOM)
    shown = [(row, column, variable, component) for row, variable in enumerate(result.variables)
             for column, component in enumerate(result.components) if component in variable.components]  # fmt: skip
    titles = {(row, column): f"{variable.name}: answers {component}" for row, column, variable, component in shown}
    n_rows, n_columns = len(result.variables), len(result.components)
    figure = make_subplots(
        n_rows, n_columns, shared_xaxes=True, shared_yaxes=True, horizontal_spacing=0.03,
        vertical_spacing=min(0.08, 0.4 / n_rows),
        subplot_titles=[titles.get((row, column), "") for row in range(n_rows) for column in range(n_columns)],
    )  # fmt: skip
    layers = ["before", *map(str, range(result.accuracy.shape[1] - 1))]
    for row, column, *_ in shown:
        heat = go.Heatmap(
            z=measured[row, :, :, column].round(decimals=3).tolist(), x=list(columns), y=layers,
            coloraxis="coloraxis", hovertemplate="%{x} after layer %{y}: %{z:.2f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=row + 1, col=column + 1)
        if result.predicted is not None and not control:
            where = (result.predicted[row, :, :, column] > UNDECIDED).nonzero().tolist()
            rings = go.Scatter(
                x=[result.roles[role] for _, role in where], y=[layers[layer] for layer, _ in where], mode="markers",
                marker={"symbol": "circle-open", "color": "#d95f02", "size": 9}, showlegend=False, hoverinfo="skip",
            )  # fmt: skip
            figure.add_trace(rings, row=row + 1, col=column + 1)
    figure.update_yaxes(type="category")
    figure.update_yaxes(title_text="layer", col=1)
    return figure.update_layout(
        coloraxis={"colorscale": "Blues", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": label}}},
        template="plotly_white",
        height=120 + n_rows * (80 + 18 * len(layers)),
        margin={"t": 50, "b": 90},
    )

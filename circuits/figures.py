"""Plots of a validation: losses with their errors, and attention from role to role."""

from collections.abc import Sequence
from math import log10, nan

import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor
from torch.nn.functional import pad

from circuits.content import ContentOrPosition
from circuits.loss import Loss
from circuits.mechanisms import REPLACEMENTS
from circuits.validation_report import ValidationReport

COLUMNS = 4


def loss_figure(report: ValidationReport) -> go.Figure:
    """What taking away each path costs, beside the unablated and the combined loss; bars are two standard errors."""
    figure = go.Figure()
    figure.add_trace(
        _points("model and circuit", [("unablated", report.full), ("all heads replaced", report.combined)], "circle")
    )
    for instead, symbol in zip(REPLACEMENTS, ("triangle-up", "square"), strict=True):
        rows = [(f"without {p.path}", p.losses[instead]) for p in report.paths]
        figure.add_trace(_points(f"row made {instead}", rows, symbol))
    _mark(figure, report.threshold, f"threshold {report.threshold:g}", "dash")
    figure.update_layout(
        title={"text": "What each attention path is worth"},
        xaxis={"title": "loss (logarithmic)", "type": "log"},
        yaxis={"autorange": "reversed"},
        template="plotly_white",
        height=160 + 30 * (2 + len(report.paths)),
        margin={"l": 240, "t": 60},
        legend={"orientation": "h", "y": -0.25},
    )
    return figure


def content_figure(found: ContentOrPosition) -> go.Figure:
    """For every head the loss with its average pattern in its place, alone; bars are two standard errors."""
    figure = go.Figure()
    for kind, heads, symbol in (("content", found.content, "diamond"), ("position", found.positional, "circle")):
        rows = [(str(head), found.alone[head]) for head in heads]
        figure.add_trace(_points(f"looks at {kind}", rows, symbol))
    _mark(figure, found.threshold, f"threshold {found.threshold:g}", "dash")
    _mark(figure, found.full.mean, "unablated", "dot")
    figure.update_layout(
        title={"text": "Content or position: one head's average pattern in its place"},
        xaxis={"title": "loss (logarithmic)", "type": "log"},
        yaxis={"autorange": "reversed", "categoryorder": "array", "categoryarray": [*map(str, found.alone)]},
        template="plotly_white",
        height=220 + 22 * len(found.alone),
        margin={"t": 80, "b": 110},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    )
    return figure


def _mark(figure: go.Figure, value: float, text: str, dash: str) -> None:
    """A line across a logarithmic axis, named at its top; plotly itself would put the name at ten to the value."""
    figure.add_vline(x=value, line_dash=dash)
    if value > 0:
        figure.add_annotation(x=log10(value), y=1.0, yref="paper", yanchor="bottom", text=text, showarrow=False)


def _points(name: str, rows: Sequence[tuple[str, Loss]], symbol: str) -> go.Scatter:
    return go.Scatter(
        name=name,
        x=[loss.mean for _, loss in rows],
        y=[label for label, _ in rows],
        error_x={"type": "data", "array": [2 * loss.standard_error for _, loss in rows]},
        mode="markers",
        marker={"symbol": symbol, "size": 10},
        hovertemplate="%{y}: %{x:.4f}<extra></extra>",
    )


def attention_figure(
    attention: Float[Tensor, "layer head query_role key_role *label"],
    roles: Sequence[str],
    order: Sequence[str],
    group: str | None = None,
) -> go.Figure:
    """One heat map for each head: the average attention of a role (down) to a role (across) of its own chain.

    Args:
        attention: from role to role; for every label of the group, where there is one.
        roles: the order of the roles in ``attention``.
        order: that in which to show them.
        group: what the labels are, such as ``slot``: every role across is divided by them.
    """
    if group is None:
        attention = attention[..., None]
    n_layers, n_heads = attention.shape[:2]
    heads = [(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    columns = min(COLUMNS, len(heads))
    n_rows = -(-len(heads) // columns)
    index = [roles.index(role) for role in order]
    columns_each = attention.shape[4] + (group is not None)  # with one left empty between two roles
    to = [f"{role}, {group} {label}" if group else role for role in order for label in range(columns_each)]
    figure = make_subplots(
        n_rows, columns, subplot_titles=[f"L{layer}H{head}" for layer, head in heads],
        horizontal_spacing=0.02, vertical_spacing=min(0.06, 0.3 / n_rows), shared_xaxes=True, shared_yaxes=True,
    )  # fmt: skip
    for place, (layer, head) in enumerate(heads):
        values = attention[layer, head][index][:, index]
        values = pad(values, (0, columns_each - values.shape[2]), value=nan).flatten(1)
        trace = go.Heatmap(
            z=[[None if value != value else round(value, 3) for value in row] for row in values.tolist()],
            x=[*range(len(to))], y=list(order), coloraxis="coloraxis", customdata=[to] * len(order),
            hovertemplate=f"L{layer}H{head}: %{{y}} attends to %{{customdata}}: %{{z:.2f}}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(trace, row=place // columns + 1, col=place % columns + 1)
    figure.update_yaxes(autorange="reversed")
    middle = [place * columns_each + (attention.shape[4] - 1) / 2 for place in range(len(order))]
    figure.update_xaxes(tickvals=middle, ticktext=list(order), showgrid=False, zeroline=False)
    figure.update_layout(
        coloraxis={"colorscale": "Blues", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "attention"}}},
        template="plotly_white",
        plot_bgcolor="#ddd",
        height=110 + 190 * n_rows,
        margin={"t": 40, "l": 100, "b": 90},
    )
    return figure

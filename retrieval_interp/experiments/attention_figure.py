"""Figures of average attention from role to role, one heat map for each head."""

from collections.abc import Sequence
from math import nan

from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor
from torch.nn.functional import pad

from circuits.heads import Head
from circuits.utils.plotting import go

COLUMNS = 4


def attention_figure(
    attention: Float[Tensor, "layer head query_role key_role *label"],
    roles: Sequence[str],
    order: Sequence[str],
    group: str | None = None,
    heads: Sequence[Head] | None = None,
) -> go.Figure:
    """Plot one heat map for each head: the average attention of a role (down) to a role (across) of its own instance.

    Args:
        attention: the average attention from role to role; with a group, also by label.
        roles: the roles, in the order of ``attention``.
        order: the roles, in the order of the figure.
        group: the name of the group, such as ``slot``; every role across is split by its labels.
        heads: the heads to show, in this order; by default all.
    """
    if group is None:
        attention = attention[..., None]
    n_layers, n_heads, *_, n_labels = attention.shape
    shown = heads or [Head(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    columns = min(COLUMNS, len(shown))
    n_rows = -(-len(shown) // columns)
    index = [roles.index(role) for role in order]
    width = n_labels + (group is not None)  # of a role, with an empty column between two roles
    to = [f"{role}, {group} {label}" if group else role for role in order for label in range(width)]
    names = [*map(str, shown)]
    figure = make_subplots(
        n_rows, columns, subplot_titles=names, horizontal_spacing=0.02, vertical_spacing=min(0.06, 0.3 / n_rows),
        shared_xaxes=True, shared_yaxes=True,
    )  # fmt: skip
    for place, (name, head) in enumerate(zip(names, shown, strict=True)):
        values = attention[head.layer, head.index]
        values = pad(values[index][:, index], (0, width - n_labels), value=nan).flatten(1)
        trace = go.Heatmap(
            z=[[None if value != value else round(value, 3) for value in row] for row in values.tolist()],
            x=[*range(len(to))], y=list(order), coloraxis="coloraxis", customdata=[to] * len(order),
            hovertemplate=f"{name}: %{{y}} attends to %{{customdata}}: %{{z:.2f}}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(trace, row=place // columns + 1, col=place % columns + 1)
    figure.update_yaxes(autorange="reversed")
    middle = [place * width + (n_labels - 1) / 2 for place in range(len(order))]
    figure.update_xaxes(tickvals=middle, ticktext=list(order), showgrid=False, zeroline=False)
    across = f"; from left to right {group} 0 to {n_labels - 1}" if group else ""
    figure.update_layout(
        title={"text": f"Attention of a role (down) to a role of its instance (across{across})", "font": {"size": 14}},
        coloraxis={"colorscale": "Blues", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "attention"}}},
        template="plotly_white", plot_bgcolor="#ddd", height=140 + 190 * n_rows, margin={"t": 70, "l": 100, "b": 90},
    )  # fmt: skip
    return figure

"""Figures of information flow: what positions share before layer 0, and what they know after each layer."""

from collections.abc import Sequence
from itertools import combinations

import plotly.colors
import plotly.graph_objects as go

from circuits.task import Layout
from retrieval_interp.theory.information_flow import spread

UNKNOWN, KNOWN, NEW = 0, 1, 2
TOKEN_COLOUR, PLACE_COLOUR = plotly.colors.qualitative.Safe[0], plotly.colors.qualitative.Safe[1]


def sharing_figure(layout: Layout, order: Sequence[str]) -> go.Figure:
    """Draw positions in a row, joined if they share a token (above) or a place (below); paper, figures 3 and 8."""
    figure = go.Figure()
    for a, b in combinations(range(len(order)), 2):
        for piece in sorted(layout.start[order[a]] & layout.start[order[b]]):
            place = piece in layout.places
            height = (-1 if place else 1) * (0.3 + 0.5 * (b - a))
            figure.add_shape(
                type="path",
                path=f"M {a},0 Q {(a + b) / 2},{height} {b},0",
                line={"color": PLACE_COLOUR, "dash": "dot"} if place else {"color": TOKEN_COLOUR},
            )
            figure.add_annotation(x=(a + b) / 2, y=0.62 * height, text=piece, showarrow=False)
    figure.add_trace(
        go.Scatter(
            x=[*range(len(order))],
            y=[0] * len(order),
            mode="markers",
            marker={"size": 12, "color": "black"},
            text=[f"{role} starts with {', '.join(sorted(layout.start[role], reverse=True))}" for role in order],
            hovertemplate="%{text}<extra></extra>",
        )
    )
    figure.update_xaxes(tickvals=[*range(len(order))], ticktext=list(order), showgrid=False, zeroline=False)
    figure.update_yaxes(visible=False, range=[-0.8, 0.8])
    return figure.update_layout(
        title={"text": "What positions share before layer 0: tokens (above) and places of pairs (below, dotted)"},
        template="plotly_white",
        height=230,
        margin={"t": 50, "b": 60},
    )


def spread_figure(layout: Layout, order: Sequence[str], *, causal: bool) -> go.Figure:
    """Draw the pieces that every position knows, with a slider over the layers.

    Args:
        layout: the positions and the pieces that they start with.
        order: the order of the rows.
        causal: whether a position sees only itself and those before it.
    """
    pieces = list(dict.fromkeys(piece for role in order for piece in sorted(layout.start[role])))
    states = list(spread(layout, causal=causal))
    frames = []
    for layer, known in enumerate(states):
        before = states[max(0, layer - 1)]
        z = [
            [UNKNOWN if piece not in known[role] else KNOWN if piece in before[role] else NEW for piece in pieces]
            for role in order
        ]
        words = {UNKNOWN: "does not know", KNOWN: "knows", NEW: "has just learned"}
        text = [[words[value] for value in row] for row in z]
        heat = go.Heatmap(
            z=z, x=pieces, y=list(order), text=text, zmin=UNKNOWN, zmax=NEW, showscale=False, xgap=2, ygap=2,
            colorscale=[[0, "#f2f2f2"], [0.5, TOKEN_COLOUR], [1, "black"]],
            hovertemplate="%{y} %{text} %{x}<extra></extra>",
        )  # fmt: skip
        frames.append(go.Frame(data=[heat], name=str(layer)))
    at_once = {"mode": "immediate", "frame": {"duration": 0}}
    steps = [{"label": frame.name, "method": "animate", "args": [[frame.name], at_once]} for frame in frames]
    mask = "with the causal mask" if causal else "without a mask"
    figure = go.Figure(data=frames[0].data, frames=frames)
    figure.update_yaxes(autorange="reversed")
    return figure.update_layout(
        title={"text": f"What every position knows, {mask} (black: new)"},
        xaxis={"title": "piece of information", "side": "top"},
        sliders=[{"steps": steps, "currentvalue": {"prefix": "after layer "}, "pad": {"t": 20}}],
        template="plotly_white",
        height=190 + 24 * len(order),
        margin={"t": 110, "l": 110},
    )

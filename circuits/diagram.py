"""The circuit diagram: roles across, layers upwards, one arrow a path, as in the paper's figure 5."""

from collections.abc import Sequence
from itertools import cycle

import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit, Path
from circuits.mechanisms import PREVIOUS
from circuits.roles import Roles

# Distinct without colour vision too (Okabe and Ito); a layer keeps its colour throughout a diagram.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# Where the conditions of a layer's paths are written in turn, beside the middle of the arrow.
AROUND = ("top center", "bottom center", "top left", "bottom right", "top right", "bottom left")


def sequence_order(roles: Roles) -> tuple[str, ...]:
    """The roles as they stand in the sequence, from left to right on average."""
    place = roles.positions.double().mean(dim=(0, 2)).tolist()
    return tuple(sorted(roles.names, key=lambda name: place[roles.names.index(name)]))


def drawn_paths(circuit: Circuit, order: Sequence[str]) -> list[tuple[Path, str, str]]:
    """Every path with the roles between which it is drawn.

    A ``Previous`` head is drawn between neighbouring members of a pair, where roles of the form
    ``name.first`` and ``name.second`` say which those are, and otherwise between neighbouring roles.
    """
    drawn = []
    for path in circuit.paths:
        if (path.source, path.target) != PREVIOUS:
            drawn.append((path, path.source, path.target))
            continue
        neighbours = list(zip(order[1:], order[:-1], strict=True))
        pairs = [(a, b) for a, b in neighbours if a.rpartition(".")[0] and a.rpartition(".")[0] == b.rpartition(".")[0]]
        drawn += [(path, a, b) for a, b in pairs or neighbours]
    return drawn


def circuit_diagram(
    circuit: Circuit,
    order: Sequence[str],
    n_layers: int,
    attention: Float[Tensor, "layer head query_role key_role"] | None = None,
    roles: Sequence[str] | None = None,
    fixed: Sequence[Path] = (),
) -> go.Figure:
    """Draw a circuit; information flows upwards, from the attended role to the one that attends.

    Args:
        circuit: what to draw.
        order: the roles from left to right; see ``sequence_order``.
        n_layers: of the model.
        attention: average attention from role to role, shown when the pointer rests on an arrow.
        roles: the order of the roles in ``attention``.
        fixed: paths of fixed patterns, drawn paler; see ``fixed_paths``.
    """
    figure = go.Figure()
    place = {role: x for x, role in enumerate(order)}
    for x in place.values():
        figure.add_shape(
            type="line", x0=x, x1=x, y0=0, y1=n_layers, line={"color": "rgba(128,128,128,.35)"}, layer="below"
        )
    useful = sorted({path.head.layer for path in (*circuit.paths, *fixed)})
    colour = {layer: COLOURS[i % len(COLOURS)] for i, layer in enumerate(useful)}
    beside = {layer: cycle(AROUND) for layer in useful}
    by_position = [(path, path.source, path.target) for path in fixed]
    for path, source, target in (*by_position, *drawn_paths(circuit, order)):
        layer = path.head.layer
        figure.add_annotation(
            x=place[source], y=layer + 1, ax=place[target], ay=layer, xref="x", yref="y", axref="x", ayref="y",
            showarrow=True, arrowhead=2, arrowsize=1.2, arrowwidth=2.2, arrowcolor=colour[layer], text="",
            opacity=0.4 if path in fixed else 1,
        )  # fmt: skip
        condition = None if path in fixed else circuit.condition(path)
        told = f"<b>{path.head}</b> (layer {layer + 1} in the paper's counting)<br>{source} attends to {target}"
        told += f"<br>on {condition} of {condition.at}" if condition else ""
        told += "<br>by position, whatever stands there" if path in fixed else ""
        if attention is not None and roles is not None:
            average = attention[layer, path.head.head, roles.index(source), roles.index(target)].item()
            told += f"<br>average attention {average:.2f}"
        figure.add_scatter(
            x=[(place[source] + place[target]) / 2], y=[layer + 0.5], mode="markers+text", showlegend=False,
            marker={"size": 14, "opacity": 0}, hovertext=told, hoverinfo="text",
            text=str(condition or ""), textposition=next(beside[layer]) if condition else AROUND[0],
            textfont={"size": 10, "color": colour[layer]},
        )  # fmt: skip
    ticks = [f"L{layer}" for layer in range(n_layers)]
    figure.update_layout(
        title={"text": f"Circuit{f' of {circuit.name}' if circuit.name else ''}: {len(circuit.paths)} attention paths"
               + (f", and {len(fixed)} of fixed patterns (pale)" if fixed else "")},
        xaxis={"tickvals": list(place.values()), "ticktext": list(order), "range": [-0.5, len(order) - 0.5],
               "title": "role, in sequence order", "showgrid": False, "zeroline": False},
        yaxis={"tickvals": [layer + 0.5 for layer in range(n_layers)], "ticktext": ticks,
               "range": [-0.2, n_layers + 0.3], "title": "layer", "showgrid": False, "zeroline": False},
        template="plotly_white", height=120 + 34 * max(n_layers, 6), margin={"t": 50, "l": 60, "r": 20, "b": 60},
    )  # fmt: skip
    return figure

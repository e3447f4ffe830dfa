"""The circuit diagram: roles across, layers upwards, one arrow for each path, as in the paper's figure 5."""

import plotly.graph_objects as go
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit
from circuits.composition.edges import Composition
from circuits.entrance import entrance
from circuits.errors import whole
from circuits.figures.diagram_edges import READ, WRITTEN, add_edges, edges_said
from circuits.flow.fixed_paths import fixed_paths
from circuits.mechanisms.mechanism import PREVIOUS
from circuits.roles import Roles

# The colours differ for colour-blind readers, too (Okabe and Ito). A layer keeps its colour throughout a diagram.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DARK = "#444444"  # the colour of all arrows, if colours stand for something else


def drawn_paths(circuit: Circuit, roles: Roles) -> list[tuple[AttentionPath, str, str]]:
    """Return every path with the two roles that it is drawn between.

    A ``Previous`` head is drawn between roles that are always adjacent. If there are none, it is drawn between
    neighbours in the sequence.
    """
    order, drawn = roles.in_order, []
    for path in circuit.paths:
        if (path.source, path.target) != PREVIOUS:
            drawn.append((path, path.source, path.target))
            continue
        ends = roles.adjacent or [*zip(order[1:], order[:-1], strict=True)]
        drawn += [(path, source, target) for source, target in ends]
    return drawn


@entrance
def circuit_diagram(
    circuit: Circuit,
    roles: Roles,
    n_layers: int,
    attention: Float[Tensor, "layer head query_role key_role"] | None = None,
    composition: Composition | None = None,
) -> go.Figure:
    """Draw a circuit. Information flows upwards, from the attended role to the role that attends.

    Paths of fixed patterns (``fixed_paths``) are drawn paler. If there are paths, only the roles at their ends are
    drawn.

    Args:
        circuit: the circuit.
        roles: the roles of some examples.
        n_layers: the number of layers of the model.
        attention: the average attention from role to role, shown when the pointer rests on an arrow.
        composition: the result of path patching. Its strongest found edges are drawn beside the lines of the roles.
            Colours then stand for the inputs Q, K and V, and all arrows are dark.
    """
    n_layers = whole("the number of layers", n_layers, 1)
    order, fixed = roles.in_order, fixed_paths(circuit, roles)
    figure = go.Figure()
    by_position = [(path, path.source, path.target) for path in fixed]
    drawn = [*by_position, *drawn_paths(circuit, roles)]
    touched = {role for _, *ends in drawn for role in ends} or {*order}
    place = {role: x for x, role in enumerate(role for role in order if role in touched)}
    for x in place.values():
        figure.add_shape(
            type="line", x0=x, x1=x, y0=0, y1=n_layers, line={"color": "rgba(128,128,128,.35)"}, layer="below"
        )
    useful = sorted({path.head.layer for path in (*circuit.paths, *fixed)})
    colour = {layer: COLOURS[i % len(COLOURS)] if composition is None else DARK for i, layer in enumerate(useful)}
    low, high = (0.0, 1.0) if composition is None else (READ, WRITTEN)
    arrows: dict[tuple[int, str, str], list[AttentionPath]] = {}  # arrows of several heads of a layer overlap
    for path, source, target in drawn:
        arrows.setdefault((path.head.layer, source, target), []).append(path)
    for (layer, source, target), paths in arrows.items():
        figure.add_annotation(
            x=place[source], y=layer + high, ax=place[target], ay=layer + low, xref="x", yref="y", axref="x", ayref="y",
            showarrow=True, arrowhead=2, arrowsize=1.2, arrowwidth=2.2, arrowcolor=colour[layer], text="",
            opacity=0.4 if all(path in fixed for path in paths) else 1,
        )  # fmt: skip
        conditions, told = [], []
        for path in paths:
            condition = fixed.get(path, path.condition)
            conditions += [condition.text(target)] if condition else []
            told.append(
                f"<b>{path.head}</b> (layer {layer + 1} in the paper's counting)<br>{source} attends to {target}"
            )
            told += [f"on {condition.text('')}"] if condition else []
            told += ["by position (fixed pattern)"] if path in fixed else []
            if attention is not None:
                ends = roles.names.index(source), roles.names.index(target)
                average = attention[layer, path.head.index, *ends].item()
                told.append(f"average attention {average:.2f}")
        figure.add_scatter(
            x=[0.25 * place[source] + 0.75 * place[target]], y=[layer + 0.75 * low + 0.25 * high],
            mode="markers+text", showlegend=False, marker={"size": 14, "opacity": 0},
            hovertext="<br>".join(told), hoverinfo="text",
            text="<br>".join(conditions), textposition="bottom center",
            textfont={"size": 10, "color": colour[layer]},
        )  # fmt: skip
    edges = ""
    if composition is not None:
        add_edges(figure, composition, place, {(*path.head, source) for path, source, _ in drawn})
        edges = f"; {edges_said(composition)}"
    ticks, n_rows = [f"L{layer}" for layer in range(n_layers)], len(circuit.removable) - len(circuit.paths)
    figure.update_layout(
        title={"text": f"Circuit{f' of {circuit.name}' if circuit.name else ''}: {len(circuit.paths)} attention paths"
               + (f", and {len(fixed)} of fixed patterns (pale)" if fixed else "")
               + (f"; not drawn: {n_rows} rows to fixed positions" if n_rows else "") + edges},
        xaxis={"tickvals": list(place.values()), "ticktext": list(place), "range": [-0.5, len(place) - 0.5],
               "title": "role, in sequence order", "showgrid": False, "zeroline": False},
        yaxis={"tickvals": [layer + 0.5 for layer in range(n_layers)], "ticktext": ticks,
               "range": [-0.3, n_layers + 0.3], "title": "layer", "showgrid": False, "zeroline": False},
        template="plotly_white", margin={"t": 50 if composition is None else 80, "l": 60, "r": 20, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
        height=120 + (34 if composition is None else 48) * max(n_layers, 6),
    )  # fmt: skip
    return figure

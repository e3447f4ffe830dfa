"""The circuit diagram: roles across, layers upwards, one arrow for each path, as in the paper's figure 5.

Edges of a composition are drawn beside the lines of the roles: what a sender writes at a role is read at the same role,
from the height of its sender up to the head that reads it.
"""

from collections.abc import Collection, Iterable, Mapping

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit
from circuits.entrance import entrance
from circuits.errors import whole
from circuits.flow.fixed_paths import fixed_paths
from circuits.mechanisms.mechanism import PREVIOUS
from circuits.roles import Roles
from circuits.tracing.edges import EMBED, Composition, Edge, Sender
from circuits.utils.plotting import go

# The colours differ for colour-blind readers, too (Okabe and Ito). A layer keeps its colour throughout a diagram.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DARK = "#444444"  # the colour of all arrows, if colours stand for something else
INPUTS = {  # colours for colour-blind readers, too (Okabe and Ito), and the side of the line
    "Q": ("where the source looks (Q)", "#0072B2", "dot", 1),
    "K": ("what the target is found by (K)", "#D55E00", "dash", -1),
    "V": ("what is fetched (V)", "#009E73", "solid", -1),
}
SYMBOLS = {"embedding": "circle", "MLP": "diamond", "head without a path here": "triangle-up"}  # of senders
STRONGEST = 2  # edges that are drawn for one input of a path
READ, WRITTEN, MLP = 0.2, 0.72, 0.92  # heights within a layer
BELOW = -0.15  # the height of the embedding
APART, BEND = 0.1, 0.1  # the distance between edges; the height over which an edge leaves the line


def drawn_paths(paths: Iterable[AttentionPath], roles: Roles) -> list[tuple[AttentionPath, str, str]]:
    """Return every path with the two roles that it is drawn between.

    A ``Previous`` head is drawn between roles that are always adjacent. If there are none, it is drawn between
    neighbours in the sequence.
    """
    order = roles.in_order
    adjacent = roles.adjacent or [*zip(order[1:], order[:-1], strict=True)]
    return [
        (path, source, target)
        for path in paths
        for source, target in (adjacent if (path.source, path.target) == PREVIOUS else [(path.source, path.target)])
    ]


@entrance
def circuit_diagram(
    circuit: Circuit,
    roles: Roles,
    n_layers: int,
    attention: Float[Tensor, "layer head query_role key_role"] | None = None,
    composition: Composition | None = None,
) -> go.Figure:
    """Draw a circuit. Information flows upwards, from the attended role to the role that attends.

    Paths of fixed patterns (``fixed_paths``) are paler. If there are paths, only the roles at their ends are drawn.

    Args:
        circuit: the circuit.
        roles: the roles of some examples.
        n_layers: the number of layers of the model.
        attention: the average attention from role to role, shown when the pointer rests on an arrow.
        composition: the result of path patching. Its strongest edges that hold are drawn beside the lines of the roles.
            Colours then stand for the inputs Q, K and V, and all arrows are dark.
    """
    n_layers = whole("the number of layers", n_layers, 1)
    fixed = fixed_paths(circuit, roles)
    drawn = [*((path, path.source, path.target) for path in fixed), *drawn_paths(circuit.paths, roles)]
    touched = {role for _, *ends in drawn for role in ends} or {*roles.names}
    place = {role: x for x, role in enumerate(role for role in roles.in_order if role in touched)}
    layers = sorted({path.head.layer for path, *_ in drawn})
    low, high, height = (0.0, 1.0, 34) if composition is None else (READ, WRITTEN, 48)
    arrows: dict[tuple[int, str, str], list[AttentionPath]] = {}  # arrows of several heads of a layer overlap
    for path, source, target in drawn:
        arrows.setdefault((path.head.layer, source, target), []).append(path)
    figure = go.Figure()
    for (layer, source, target), paths in arrows.items():
        colour = DARK if composition else COLOURS[layers.index(layer) % len(COLOURS)]
        figure.add_annotation(
            x=place[source], y=layer + high, ax=place[target], ay=layer + low, xref="x", yref="y", axref="x", ayref="y",
            showarrow=True, arrowhead=2, arrowsize=1.2, arrowwidth=2.2, arrowcolor=colour, text="",
            opacity=0.4 if all(path in fixed for path in paths) else 1,
        )  # fmt: skip
        conditions, texts = [", ".join(dict.fromkeys(str(path.head) for path in paths))], []
        for path in paths:
            condition = fixed.get(path, path.condition)
            conditions += [condition.text(target)] if condition else []
            texts += [
                f"<b>{path.head}</b> (layer {layer + 1} in the paper's counting)",
                f"{source} attends to {target}",
            ]
            texts += [f"on {condition.text('')}"] if condition else []
            texts += ["by position (fixed pattern)"] if path in fixed else []
            if attention is not None:
                share = attention[layer, path.head.index, roles.names.index(source), roles.names.index(target)].item()
                texts.append(f"average attention {share:.2f}")
        figure.add_scatter(
            x=[0.25 * place[source] + 0.75 * place[target]], y=[layer + 0.75 * low + 0.25 * high],
            mode="markers+text", showlegend=False, marker={"size": 14, "opacity": 0},
            hovertext="<br>".join(texts), hoverinfo="text",
            text="<br>".join(conditions), textposition="bottom center", textfont={"size": 10, "color": colour},
        )  # fmt: skip
    title = f"Circuit{f' of {circuit.name}' if circuit.name else ''}: {len(circuit.paths)} attention paths"
    title += f", and {len(fixed)} of fixed patterns (pale)" if fixed else ""
    n_rows = len(circuit.removable) - len(circuit.paths)
    title += f"; rows to fixed positions, not drawn: {n_rows}" if n_rows else ""
    if composition is not None:
        said = add_edges(figure, composition, place, {(*path.head, source) for path, source, _ in drawn})
        title += f"; {said}"
    columns = {"tickvals": [*place.values()], "ticktext": [*place], "range": [-0.5, len(place) - 0.5]}
    rows = {"tickvals": [layer + 0.5 for layer in range(n_layers)], "ticktext": [f"L{n}" for n in range(n_layers)]}
    figure.update_layout(
        title={"text": title}, template="plotly_white", height=120 + height * max(n_layers, 6),
        xaxis={**columns, "title": "role, in sequence order", "gridcolor": "rgba(128,128,128,.35)", "zeroline": False},
        yaxis={**rows, "range": [-0.3, n_layers + 0.3], "title": "layer", "showgrid": False, "zeroline": False},
        margin={"t": 50 if composition is None else 80, "l": 60, "r": 20, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
    )  # fmt: skip
    return figure


def drawn_edges(composition: Composition) -> list[Edge]:
    """Return the edges that hold, for each input of a path only the strongest."""
    inputs = [composition.of(path, which) for path in composition.attention for which in INPUTS]
    return [
        edge
        for edges in inputs
        for edge in sorted(edges, key=lambda one: one.effect.mean if one.effect else 0.0, reverse=True)[:STRONGEST]
    ]


def add_edges(
    figure: go.Figure, composition: Composition, place: Mapping[str, int], tips: Collection[tuple[int, int, str]]
) -> str:
    """Draw the edges of a composition; return how many are drawn, and how many are not.

    Args:
        figure: the diagram.
        composition: the edges.
        place: the column of every role.
        tips: the layer, index and role at the tip of every arrow; a sending head needs no mark there.
    """
    edges = drawn_edges(composition)
    beside: dict[tuple[str, int], list[Edge]] = {}  # by role and side; the shortest is next to the line
    for edge in sorted(edges, key=lambda edge: _high(edge) - _low(edge.sender)):
        beside.setdefault((edge.sender_role, INPUTS[edge.input][3]), []).append(edge)
    apart = min(APART, 0.45 / max(map(len, beside.values()), default=1))
    for which, (label, colour, dash, side) in INPUTS.items():
        read = [edge for edge in edges if edge.input == which]
        lines: list[tuple[float | None, float | None]] = []
        dots: list[tuple[float, float]] = []
        for edge in read:
            line, low, high = place[edge.sender_role], _low(edge.sender), _high(edge)
            x = line + side * apart * (1 + beside[edge.sender_role, side].index(edge))
            lines += [(line, low), (x, low + BEND), (x, high - BEND), (line, high), (None, None)]
            dots.append((x, high - BEND))
        figure.add_scatter(
            x=[x for x, _ in lines], y=[y for _, y in lines], mode="lines", name=label, hoverinfo="skip",
            line={"color": colour, "width": 1.5, "dash": dash}, showlegend=bool(lines),
        )  # fmt: skip
        figure.add_scatter(
            x=[x for x, _ in dots], y=[y for _, y in dots], mode="markers", showlegend=False,
            marker={"size": 5, "color": colour}, hovertext=[*map(_text, read)], hoverinfo="text",
        )  # fmt: skip
    marked: dict[str, list[tuple[Sender, str]]] = {kind: [] for kind in SYMBOLS}
    for sender, role in sorted({(edge.sender, edge.sender_role) for edge in edges}):
        if (*(sender.head or ()), role) not in tips:
            kind = "MLP" if sender.is_mlp else "embedding" if sender == EMBED else "head without a path here"
            marked[kind].append((sender, role))
    for kind, nodes in marked.items():
        figure.add_scatter(
            x=[place[role] for _, role in nodes], y=[_low(sender) for sender, _ in nodes], mode="markers", name=kind,
            marker={"size": 9, "symbol": SYMBOLS[kind], "color": "white", "line": {"color": "#444", "width": 1.5}},
            hovertext=[f"{sender} at {role}" for sender, role in nodes], hoverinfo="text", showlegend=bool(nodes),
        )  # fmt: skip
    n_more = len(composition.of()) - len(edges)
    more = f" (the strongest {STRONGEST} of each input; {n_more} more in the table)" if n_more else ""
    return f"{len(edges)} edges{more}"


def _low(sender: Sender) -> float:
    return BELOW if sender == EMBED else sender.layer + (MLP if sender.is_mlp else WRITTEN)


def _high(edge: Edge) -> float:
    return edge.path.head.layer + READ


def _text(edge: Edge) -> str:
    """Return the text that is shown when the pointer rests on an edge."""
    name = str(edge.sender)
    return str(edge).replace(name, f"<b>{name}</b>", 1).replace(", read", "<br>read").replace("; ", "<br>")

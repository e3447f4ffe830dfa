"""The edges of a composition in a circuit diagram: by which senders heads find their place, and what they fetch.

What a sender writes at a role is read at the same role, so every edge runs beside the role's line, from the height of
its sender up to the head that reads it.
"""

from collections.abc import Collection, Mapping

from circuits.tracing.edges import EMBED, Composition, Edge, Sender
from circuits.utils.plotting import go

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


def drawn_edges(composition: Composition) -> list[Edge]:
    """Return the edges that hold, for each input of a path only the strongest."""
    inputs = [composition.of(path, which) for path in composition.attention for which in INPUTS]
    return [edge for edges in inputs for edge in sorted(edges, key=_strength, reverse=True)[:STRONGEST]]


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
    senders = {(edge.sender, edge.sender_role) for edge in edges}
    marked = [(sender, role) for sender, role in sorted(senders) if (*(sender.head or ()), role) not in tips]
    for kind, symbol in SYMBOLS.items():
        nodes = [(sender, role) for sender, role in marked if _kind(sender) == kind]
        figure.add_scatter(
            x=[place[role] for _, role in nodes], y=[_low(sender) for sender, _ in nodes], mode="markers", name=kind,
            marker={"size": 9, "symbol": symbol, "color": "white", "line": {"color": "#444", "width": 1.5}},
            hovertext=[f"{sender} at {role}" for sender, role in nodes], hoverinfo="text", showlegend=bool(nodes),
        )  # fmt: skip
    n_more = len(composition.of()) - len(edges)
    more = f" (the strongest {STRONGEST} of each input; {n_more} more in the table)" if n_more else ""
    return f"{len(edges)} edges{more}"


def _strength(edge: Edge) -> float:
    return edge.effect.mean if edge.effect else 0.0


def _low(sender: Sender) -> float:
    return BELOW if sender == EMBED else sender.layer + (MLP if sender.is_mlp else WRITTEN)


def _high(edge: Edge) -> float:
    return edge.path.head.layer + READ


def _kind(sender: Sender) -> str:
    return "MLP" if sender.is_mlp else "embedding" if sender == EMBED else "head without a path here"


def _text(edge: Edge) -> str:
    """Return the text that is shown when the pointer rests on an edge."""
    name = str(edge.sender)
    return str(edge).replace(name, f"<b>{name}</b>", 1).replace(", read", "<br>read").replace("; ", "<br>")

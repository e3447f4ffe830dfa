"""The edges of a composition in a circuit diagram: by which senders heads find their place, and what they fetch.

What a sender writes at a role is read at the same role, so every edge runs along a role's line. One *rail* beside the
line stands for all that one input of the heads above reads from one sender; a dot marks each head that reads it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import plotly.graph_objects as go

from circuits.tracing.edges import EMBED, Composition, Edge, Sender

INPUTS = {  # colours for colour-blind readers, too (Okabe and Ito), and the side of the line
    "Q": ("where the source looks (Q)", "#0072B2", "dot", 1),
    "K": ("what the target is found by (K)", "#D55E00", "dash", -1),
    "V": ("what is fetched (V)", "#009E73", "solid", -1),
}
NODES = {"embedding": "circle", "MLP": "diamond", "head without a path here": "triangle-up"}
STRONGEST = 2  # edges that are drawn for one input of a path
READ, WRITTEN, MLP = 0.2, 0.72, 0.92  # heights within a layer
BELOW = -0.15  # the height of the embedding
RAIL, BEND = 0.1, 0.1  # the distance between rails; the height over which a rail leaves the line


@dataclass(frozen=True)
class Rail:
    """What one input of several heads reads from one sender at one role.

    Attributes:
        sender: the sender.
        role: the role at which it writes, and is read.
        input: the input that reads: ``Q``, ``K`` or ``V``.
        edges: the edges, from the lowest layer up.
    """

    sender: Sender
    role: str
    input: str
    edges: tuple[Edge, ...]

    @property
    def ends(self) -> tuple[float, float]:
        """The heights of the sender and of the highest head that reads it."""
        return _height(self.sender), self.edges[-1].path.head.layer + READ


def drawn_edges(composition: Composition) -> tuple[Edge, ...]:
    """Return the edges that hold, for each input of a path only the strongest."""
    kept = []
    for path in composition.attention:
        for which in INPUTS:
            kept += sorted(composition.of(path, which), key=_strength, reverse=True)[:STRONGEST]
    return tuple(kept)


def edges_said(composition: Composition) -> str:
    """Return how many edges are drawn, and how many are not."""
    n_drawn, n_edges = len(drawn_edges(composition)), len(composition.of())
    more = f" (the strongest {STRONGEST} of each input; {n_edges - n_drawn} more in the table)"
    return f"{n_drawn} edges" + (more if n_drawn < n_edges else "")


def add_edges(
    figure: go.Figure, composition: Composition, place: Mapping[str, int], tips: Collection[tuple[int, int, str]]
) -> None:
    """Draw the edges of a composition.

    Args:
        figure: the diagram.
        composition: the edges.
        place: the column of every role.
        tips: the layer, index and role at the tip of every arrow; a sending head needs no mark there.
    """
    rails = _rails(drawn_edges(composition))
    for which, (label, colour, dash, side) in INPUTS.items():
        own = [(rail, place[rail.role] + side * RAIL * lane) for rail, lane in rails if rail.input == which]
        lines: list[tuple[float | None, float | None]] = []
        dots: list[tuple[float, float, str]] = []
        for rail, x in own:
            line, (start, _) = place[rail.role], rail.ends
            lines += [(line, start), (x, start + BEND)]
            for layer, readers in groupby(rail.edges, key=lambda edge: edge.path.head.layer):
                read = layer + READ
                lines += [(x, read - BEND), (line, read), (None, None), (x, read - BEND)]
                dots.append((x, read - BEND, "<br>".join(map(_told, readers))))
            lines.append((None, None))
        figure.add_scatter(
            x=[x for x, _ in lines], y=[y for _, y in lines], mode="lines", name=label, hoverinfo="skip",
            line={"color": colour, "width": 1.5, "dash": dash}, showlegend=bool(own),
        )  # fmt: skip
        figure.add_scatter(
            x=[x for x, _, _ in dots], y=[y for _, y, _ in dots], mode="markers", showlegend=False,
            marker={"size": 5, "color": colour}, hovertext=[told for *_, told in dots], hoverinfo="text",
        )  # fmt: skip
    for label, symbol in NODES.items():
        nodes = {
            (rail.sender, rail.role): None
            for rail, _ in rails
            if _kind(rail.sender) == label and (rail.sender.head is None or (*rail.sender.head, rail.role) not in tips)
        }
        figure.add_scatter(
            x=[place[role] for _, role in nodes], y=[_height(sender) for sender, _ in nodes], mode="markers",
            name=label, showlegend=bool(nodes), hovertext=[f"{sender} at {role}" for sender, role in nodes],
            marker={"size": 9, "symbol": symbol, "color": "white", "line": {"color": "#444", "width": 1.5}},
            hoverinfo="text",
        )  # fmt: skip


def _rails(edges: Sequence[Edge]) -> list[tuple[Rail, int]]:
    """Return all rails, each with its number beside the line: of rails on one side none cross."""
    by_rail: dict[tuple[Sender, str, str], list[Edge]] = {}
    for edge in edges:
        by_rail.setdefault((edge.sender, edge.sender_role, edge.input), []).append(edge)
    rails = [Rail(*key, tuple(sorted(own, key=lambda edge: edge.path.head.layer))) for key, own in by_rail.items()]
    taken: dict[tuple[str, int], list[list[tuple[float, float]]]] = {}  # per role and side, the rails of every lane
    numbered = []
    for rail in sorted(rails, key=lambda rail: (rail.ends[1] - rail.ends[0], rail.input, rail.sender)):
        lanes = taken.setdefault((rail.role, INPUTS[rail.input][3]), [])
        low, high = rail.ends
        lane = next((n for n, own in enumerate(lanes) if all(high <= a or low >= b for a, b in own)), len(lanes))
        lanes[lane:] = lanes[lane:] or [[]]
        lanes[lane].append(rail.ends)
        numbered.append((rail, lane + 1))
    return numbered


def _strength(edge: Edge) -> float:
    return edge.effect.mean if edge.effect else 0.0


def _height(sender: Sender) -> float:
    return BELOW if sender == EMBED else sender.layer + (MLP if sender.is_mlp else WRITTEN)


def _kind(sender: Sender) -> str:
    return "MLP" if sender.is_mlp else "embedding" if sender == EMBED else "head without a path here"


def _told(edge: Edge) -> str:
    """Return the text that is shown when the pointer rests on an edge."""
    name = str(edge.sender)
    return str(edge).replace(name, f"<b>{name}</b>", 1).replace(", read", "<br>read").replace("; ", "<br>")

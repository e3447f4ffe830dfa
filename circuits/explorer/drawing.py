"""The circuit of an exploration as an interactive drawing: roles across, layers upwards, one arrow for each path.

The attribute ``data-act`` of every head and path names the action for a click, or for a choice with the keyboard. No
information is shown by colour alone: a removed path is dashed, and a head shows its state as text.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import NamedTuple

from circuits.circuit import AttentionPath, Head
from circuits.composition.edges import Edge
from circuits.explorer.draft import Draft
from circuits.explorer.exploration import Exploration
from circuits.figures.diagram import COLOURS, drawn_paths
from circuits.figures.diagram_edges import INPUTS, MLP, READ

ROW, COLUMN, BOX, MARGIN = 38.0, 76.0, 116.0, 26.0  # sizes, in pixels
THIN, WIDE = 1.2, 6.0  # widths of arrows with attention 0 and 1
TIP = 14.0  # length of an arrow's tip
SMALLEST = 0.85  # the smallest scale at which the text is readable; a drawing that is still too wide scrolls
BESIDE, APART = 8.0, 5.0  # the distance of an edge from its role's line, and of edges from one another
FAINT = "#8a8a8a"  # readable on white and on black


class Segment(NamedTuple):
    """One arrow of a path; a ``Previous`` head has several.

    Attributes:
        ends: x and y of the arrow's start and of its tip.
        attention: the attention along the path in the unablated model.
    """

    ends: tuple[float, float, float, float]
    attention: float


def full_width(exploration: Exploration) -> float:
    """Return the full width of the drawing, in pixels."""
    return 2 * MARGIN + BOX * exploration.model.cfg.n_heads + COLUMN * len(exploration.few.roles.names)


def drawing(
    exploration: Exploration,
    chosen: Head,
    labels: Mapping[AttentionPath, str] | None = None,
    edges: Sequence[Edge] = (),
) -> str:
    """Draw an exploration as SVG.

    Args:
        exploration: the exploration.
        chosen: the chosen head.
        labels: a label for some paths, such as whether they are needed.
        edges: edges to draw as thin lines, each with its sender.
    """
    cfg, roles = exploration.model.cfg, exploration.few.roles
    left, width, height = MARGIN + BOX * cfg.n_heads, full_width(exploration), ROW * cfg.n_layers + 2 * MARGIN
    place = {role: left + COLUMN * (n + 0.5) for n, role in enumerate(roles.in_order)}

    def level(layer: int | float) -> float:
        return height - MARGIN - ROW * layer

    lines = [
        f'<line x1="{x:g}" x2="{x:g}" y1="{level(0):g}" y2="{level(cfg.n_layers):g}" stroke="{FAINT}" opacity=".4"/>'
        f'<text x="{x:g}" y="{height - 6:g}" text-anchor="middle" fill="currentColor">{escape(role)}</text>'
        for role, x in place.items()
    ]
    heads = [
        _head(head, exploration.draft.state(head), MARGIN + BOX * head.index, level(head.layer + 1), head == chosen)
        for head in exploration.heads
    ]
    draft = exploration.draft
    there = draft.paths
    layers = sorted({path.head.layer for path in there})
    colour = {layer: COLOURS[n % len(COLOURS)] for n, layer in enumerate(layers)}
    segments: dict[AttentionPath, list[Segment]] = {}
    added = draft.circuit.without_heads(path.head for path in draft.hypothesis.paths if there[path])
    for path, source, target in (*drawn_paths(draft.hypothesis, roles), *drawn_paths(added, roles)):
        ends = place[target], level(path.head.layer), place[source], level(path.head.layer + 1)
        attention = exploration.strength(AttentionPath(path.head, source, target))
        segments.setdefault(path, []).append(Segment(ends, attention))
    paths = [
        _path(path, own, there[path], colour[path.head.layer], _label(draft, path, labels or {}))
        for path, own in segments.items()
    ]
    drawn = [
        _edge(edge, place[edge.sender_role], level, n, sum(map(partial(_beside, edge), edges[:n])))
        for n, edge in enumerate(edges)
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'style="max-width: 100%; min-width: {SMALLEST * width:g}px; height: auto" '
        f'font-family="system-ui, sans-serif" font-size="12" role="group" aria-label="the circuit">'
        f"{''.join((*lines, *heads, *paths, *drawn))}</svg>"
    )


def _label(draft: Draft, path: AttentionPath, labels: Mapping[AttentionPath, str]) -> str:
    """Return the text beside a path: its condition and its label."""
    condition = next((own.condition for own in draft.hypothesis.paths if own == path), None)
    return "; ".join(filter(None, (condition.text(path.target) if condition else "", labels.get(path, ""))))


def _head(head: Head, state: str, x: float, y: float, chosen: bool) -> str:
    told = f"{head} is {state}; press to change it"
    return (
        f'<g class="head" data-act="head {head}" tabindex="0" role="button" aria-label="{told}"><title>{told}</title>'
        f'<rect x="{x:g}" y="{y + 6:g}" width="{BOX - 10:g}" height="{ROW - 12:g}" rx="4" fill="transparent" '
        f'stroke="currentColor" stroke-width="{2.5 if chosen else 0.7}"/>'
        f'<text x="{x + 8:g}" y="{y + ROW / 2 + 4:g}" fill="currentColor">{head} {state}</text></g>'
    )


def _path(path: AttentionPath, segments: Sequence[Segment], there: bool, colour: str, label: str) -> str:
    does = "remove it" if there else "put it back"
    weakest, strongest = (choose(segment.attention for segment in segments) for choose in (min, max))
    attention = f"{weakest:.2f}" + (f" to {strongest:.2f}" if len(segments) > 1 else "")
    name = escape(str(path))
    beside = f" ({escape(label)})" if label else ""
    told = f"{name}{beside}, attention {attention}, {'in the circuit' if there else 'removed'}; press to {does}"
    drawn = "".join(_arrow(segment, there, colour, label) for segment in segments)
    return (
        f'<g class="path" data-act="path {name}" tabindex="0" role="button" aria-pressed="{str(there).lower()}" '
        f'aria-label="{told}"><title>{told}</title>{drawn}</g>'
    )


def _beside(edge: Edge, other: Edge) -> bool:
    """Whether the names of two edges would be written at the same place."""
    side, others = INPUTS[edge.input][-1], INPUTS[other.input][-1]
    return (edge.sender, edge.sender_role, side) == (other.sender, other.sender_role, others)


def _edge(edge: Edge, x: float, level: Callable[[float], float], number: int, n_beside: int) -> str:
    """Draw an edge as a thin line beside the line of its role, from the sender's layer to the reading head.

    Args:
        edge: the edge.
        x: the line of its role.
        level: the height of a layer.
        number: a number, by which lines stand apart.
        n_beside: the number of names that are written at the same place.
    """
    _, colour, _, side = INPUTS[edge.input]
    low = level(max(0.0, edge.sender.layer + (MLP if edge.sender.is_mlp else 0.5)))
    high = level(edge.path.head.layer + READ)
    aside = x + side * (BESIDE + APART * (number % 4))
    told = escape(f"{edge.sender} ({edge.input})")
    return (
        f'<g class="edge" pointer-events="none"><title>{escape(edge.said)}</title>'
        f'<path d="M{x:g} {low:.1f} L{aside:g} {low - 3:.1f} L{aside:g} {high + 3:.1f} L{x:g} {high:.1f}" fill="none" '
        f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="2 3"/>'
        f'<text x="{aside + 3 * side:g}" y="{low - 10 * n_beside:.1f}" text-anchor="{"start" if side > 0 else "end"}" '
        f'font-size="10" fill="currentColor">{told}</text></g>'
    )


def _arrow(segment: Segment, there: bool, colour: str, label: str) -> str:
    x1, y1, x2, y2 = segment.ends
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    corners = [(x2, y2), *((x2 - TIP * dx - side * dy, y2 - TIP * dy + side * dx) for side in (TIP / 2, -TIP / 2))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    line = f'x1="{x1:g}" y1="{y1:g}" x2="{x2 - (TIP - 1) * dx:.1f}" y2="{y2 - (TIP - 1) * dy:.1f}"'
    stroke, dashes = (colour, "") if there else (FAINT, ' stroke-dasharray="5 5"')
    middle = f'x="{(x1 + x2) / 2 - 14:g}" y="{(y1 + y2) / 2 - 10:g}"'
    beside = f'<text {middle} text-anchor="middle" fill="currentColor">{escape(label)}</text>' if label else ""
    return (
        f'<line {line} stroke="transparent" stroke-width="16"/>'
        f'<line {line} stroke="{stroke}" stroke-width="{THIN + (WIDE - THIN) * segment.attention:.1f}"{dashes}/>'
        f'<polygon points="{points}" fill="{stroke}"/>{beside}'
    )

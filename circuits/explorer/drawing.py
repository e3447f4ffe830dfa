"""The circuit of an exploration as a drawing to act on: roles across, layers upwards, an arrow a path.

Every head and every path carries in ``data-act`` what to do when it is clicked, or chosen with the keyboard. Nothing is
said by colour alone: a path that was taken away is dashed, a head says in words what it does.
"""

from collections.abc import Mapping, Sequence
from html import escape

from circuits.circuit import Head, Path
from circuits.diagram import COLOURS, drawn_paths
from circuits.explorer.exploration import Exploration

ROW, COLUMN, BOX, MARGIN = 38.0, 88.0, 116.0, 26.0  # sizes, in pixels
THIN, WIDE = 1.2, 6.0  # arrows without attention, and with all of it
TIP = 14.0  # of arrows
SMALLEST = 0.85  # of its size, so that its words can be read; where that is too wide it can be scrolled
FAINT = "#8a8a8a"  # readable on white and on black


def drawing(
    exploration: Exploration, order: Sequence[str], chosen: Head, labels: Mapping[Path, str] | None = None
) -> str:
    """The drawing as SVG.

    Args:
        exploration: what to draw.
        order: the roles from left to right.
        chosen: the head that is looked at.
        labels: a word beside paths, such as whether they are needed.
    """
    cfg = exploration.model.cfg
    left = MARGIN + BOX * cfg.n_heads
    place = {role: left + COLUMN * (n + 0.5) for n, role in enumerate(order)}
    width, height = left + COLUMN * len(order) + MARGIN, ROW * cfg.n_layers + 2 * MARGIN

    def level(layer: int) -> float:
        return height - MARGIN - ROW * layer

    lines = [
        f'<line x1="{x:g}" x2="{x:g}" y1="{level(0):g}" y2="{level(cfg.n_layers):g}" stroke="{FAINT}" opacity=".4"/>'
        f'<text x="{x:g}" y="{height - 6:g}" text-anchor="middle" fill="currentColor">{escape(role)}</text>'
        for role, x in place.items()
    ]
    heads = [
        _head(head, exploration.draft.state(head), MARGIN + BOX * head.head, level(head.layer + 1), head == chosen)
        for head in exploration.heads
    ]
    layers = sorted({head.layer for head in exploration.draft.hypothesis.useful_heads})
    colour = {layer: COLOURS[n % len(COLOURS)] for n, layer in enumerate(layers)}
    paths = []
    for path, source, target in drawn_paths(exploration.draft.hypothesis, order):
        low, high = level(path.head.layer), level(path.head.layer + 1)
        ends = place[target], low, place[source], high
        attention = exploration.strength(Path(path.head, source, target))
        label = (labels or {}).get(path, "")
        there = exploration.draft.there(path)
        paths.append(_path(path, ends, attention, there, colour[path.head.layer], label))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'style="max-width: 100%; min-width: {SMALLEST * width:g}px; height: auto" '
        f'font-family="system-ui, sans-serif" font-size="12" role="group" aria-label="the circuit">'
        f"{''.join((*lines, *heads, *paths))}</svg>"
    )


def _head(head: Head, state: str, x: float, y: float, chosen: bool) -> str:
    told = f"{head} is {state}; press to make it something else"
    return (
        f'<g class="head" data-act="head {head}" tabindex="0" role="button" aria-label="{told}"><title>{told}</title>'
        f'<rect x="{x:g}" y="{y + 6:g}" width="{BOX - 10:g}" height="{ROW - 12:g}" rx="4" fill="transparent" '
        f'stroke="currentColor" stroke-width="{2.5 if chosen else 0.7}"/>'
        f'<text x="{x + 8:g}" y="{y + ROW / 2 + 4:g}" fill="currentColor">{head} {state}</text></g>'
    )


def _path(
    path: Path,
    ends: tuple[float, float, float, float],
    attention: float,
    there: bool,
    colour: str,
    label: str,
) -> str:
    x1, y1, x2, y2 = ends
    does = "take it away" if there else "put it back"
    name = escape(str(path))
    told = escape(f"{path}, attention {attention:.2f}, {'in the circuit' if there else 'taken away'}; press to {does}")
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    dx, dy = (x2 - x1) / length, (y2 - y1) / length
    corners = [(x2, y2), *((x2 - TIP * dx - side * dy, y2 - TIP * dy + side * dx) for side in (TIP / 2, -TIP / 2))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
    line = f'x1="{x1:g}" y1="{y1:g}" x2="{x2 - (TIP - 1) * dx:.1f}" y2="{y2 - (TIP - 1) * dy:.1f}"'
    stroke, dashes = (colour, "") if there else (FAINT, ' stroke-dasharray="5 5"')
    middle = f'x="{(x1 + x2) / 2 - 6:g}" y="{(y1 + y2) / 2 - 10:g}"'
    beside = f'<text {middle} text-anchor="middle" fill="currentColor">{escape(label)}</text>' if label else ""
    return (
        f'<g class="path" data-act="path {name}" tabindex="0" role="button" aria-pressed="{str(there).lower()}" '
        f'aria-label="{told}"><title>{told}</title><line {line} stroke="transparent" stroke-width="16"/>'
        f'<line {line} stroke="{stroke}" stroke-width="{THIN + (WIDE - THIN) * attention:.1f}"{dashes}/>'
        f'<polygon points="{points}" fill="{stroke}"/>{beside}</g>'
    )

"""The circuit diagram: roles across, a row for each head, the lowest at the bottom, one arrow for each path.

An SVG of our own: it stays where it is, its texts are texts, and an arrow says what it is when the pointer rests on it.
A head has the same colour in every diagram (``colour``), and nothing is shown by colour alone: paths of fixed patterns
are dotted, removed paths dashed, and a head shows its state as text.
"""

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import atan2, degrees, hypot
from typing import Any

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.figures.page import render
from circuits.flow.fixed_paths import fixed_paths
from circuits.mechanisms.mechanism import PREVIOUS, Mechanism
from circuits.mechanisms.one_hot import OneHot
from circuits.mechanisms.soft import Soft
from circuits.roles import Roles
from circuits.tracing.edges import Composition

# For colour-blind readers, too (after Okabe and Ito); each has a contrast of 3 or more on white and on black.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#B8609A", "#8A6D00", "#7A5CC8", "#64748B", "#C2364B", "#0E8A9B")
FAINT = "#767676"  # readable on white and on black
ROW, COLUMN, BOX, MARGIN, BESIDE = 44.0, 84.0, 126.0, 26.0, 330.0  # sizes, in pixels
LETTER, UNKNOWN = 7.0, 0.25  # the width of a letter; that of an arrow whose attention is not known
THIN, WIDE = 1.2, 6.0  # widths of arrows of attention 0 and 1
TIP, FINGER = 14.0, 29.0  # the length of an arrow's tip; the width of what is pressed
SMALLEST = 0.85  # the smallest scale at which the text is readable; a drawing that is still too wide scrolls
STRONGEST = 2  # senders that are named for one input of a head
PRESS = {True: "; press to change it", False: ""}
DASHES = {"removed": "6 5", "by position": "2 4"}


@dataclass(frozen=True)
class Diagram:
    """An SVG that notebooks show, with a caption."""

    svg: str
    caption: str

    def _repr_html_(self) -> str:
        caption = f"<figcaption>{escape(self.caption)}</figcaption>"
        style = "margin: 0; overflow-x: auto"
        return f'<figure class="circuit-diagram" tabindex="0" style="{style}">{self.svg}{caption}</figure>'


@dataclass(frozen=True)
class Drawn:
    """A path in a drawing, with a text at its arrow: ``in the circuit``, ``by position`` or ``removed``."""

    path: AttentionPath
    state: str
    label: str = ""


def colour(head: Head) -> str:
    """Return the colour of a head, the same in every diagram."""
    return COLOURS[(head.layer + 2 * head.index) % len(COLOURS)]


def state_of(mechanism: Mechanism | None) -> str:
    """Return the state of a head: ``paths``, ``positions`` (rows to these only), ``intact``, or a mechanism's name."""
    if isinstance(mechanism, OneHot):
        return "paths" if mechanism.paths else "positions"
    return "intact" if mechanism is None else mechanism.name


@entrance
def circuit_diagram(
    circuit: Circuit,
    roles: Roles,
    attention: Float[Tensor, "layer head query_role key_role"] | None = None,
    composition: Composition | None = None,
) -> Diagram:
    """Draw the heads of a circuit that have paths or are named intact, with all paths.

    Information flows upwards, from the attended role to the role that attends. Only the roles at the ends of paths are
    drawn. Paths of fixed patterns (``fixed_paths``) are dotted.

    Args:
        circuit: the circuit.
        roles: the roles of some examples.
        attention: the average attention from role to role: arrows are as wide as it is high.
        composition: the result of path patching: the strongest senders stand beside each head.
    """
    circuit.check(roles, 1 + max((head.layer for head in circuit.heads), default=0), sys.maxsize)
    fixed = fixed_paths(circuit, roles)
    paths = [Drawn(path, "by position", on.text(path.target) if on else "") for path, on in fixed.items()]
    paths += [
        Drawn(path, "in the circuit", path.condition.text(path.target) if path.condition else "")
        for path in circuit.paths
    ]
    named = {*circuit.looking, *(one.path.head for one in paths)}
    rows = {head: state_of(mechanism) for head, mechanism in circuit.heads.items() if head in named}
    beside = {head: senders(composition, head) for head in rows} if composition else {}
    name, n_rows = f"{circuit.name}: " if circuit.name else "", len(circuit.removable) - len(circuit.paths)
    said = f"{name}{len(circuit.paths)} attention paths; arrows lead up from the role looked at to the role that looks"
    said += f"; {len(fixed)} of fixed patterns (dotted)" if fixed else ""
    said += "; the text at an arrow says on which instances the path holds" if any(one.label for one in paths) else ""
    said += f"; rows to fixed positions, not drawn: {n_rows}" if n_rows else ""
    said += (
        "; soft: average weights between roles" if any(isinstance(circuit.heads[head], Soft) for head in rows) else ""
    )
    said += "; at the right, who writes what a head finds its place by (Q, K) and fetches (V)" if beside else ""
    return Diagram(drawing(rows, paths, roles, attention, beside), f"{said}.")


def senders(composition: Composition, head: Head) -> tuple[str, str]:
    """Return the strongest senders of each input of a head as text, and all its edges that hold."""
    held = [edge for edge in composition.of() if edge.path.head == head]
    held.sort(key=lambda edge: -edge.effect.mean if edge.effect else 0.0)
    inputs = {which: [*dict.fromkeys(edge.sender for edge in held if edge.input == which)] for which in "QKV"}
    texts = [f"{which}: {', '.join(names[:STRONGEST])}" for which, names in inputs.items() if names]
    return "; ".join(texts), "\n".join(map(str, held))


def full_width(roles: Iterable[str], beside: bool = False) -> float:
    """Return the full width of a drawing, in pixels."""
    return 2 * MARGIN + BOX + sum(map(_column, roles)) + (BESIDE if beside else COLUMN)


def drawing(
    rows: Mapping[Head, str],
    paths: Iterable[Drawn],
    roles: Roles,
    attention: Float[Tensor, "layer head query_role key_role"] | None = None,
    beside: Mapping[Head, tuple[str, str]] | None = None,
    chosen: Head | None = None,
    pressed: bool = False,
) -> str:
    """Draw paths as SVG.

    Args:
        rows: the heads that get a row, with their states.
        paths: the paths; of one that joins no roles, all pairs of adjacent roles are drawn.
        roles: the roles of some examples.
        attention: the average attention from role to role.
        beside: texts at the right of heads, and what they say when the pointer rests on them.
        chosen: the head that is marked.
        pressed: whether heads and paths can be pressed: their ``data-act`` names what happens then.
    """
    ends = {one: pairs for one in paths if (pairs := _ends(one.path, roles))}
    touched = {role for pairs in ends.values() for pair in pairs for role in pair}
    place, left = {}, MARGIN + BOX
    for role in (role for role in roles.in_order if pressed or not touched or role in touched):
        place[role], left = left + _column(role) / 2, left + _column(role)
    top_down = sorted(rows, reverse=True)
    low = {head: 2 * MARGIN + ROW * (n + 1) for n, head in enumerate(top_down)}
    heads = [
        {"head": head, "state": rows[head], "ink": colour(head), "low": low[head], "chosen": head == chosen}
        | {"title": f"{head} is {rows[head]}" + PRESS[pressed], "beside": (beside or {}).get(head, ("", ""))}
        for head in top_down
    ]
    drawn, said = [], dict[str, tuple[Head, float]]()  # the same text stands at one arrow
    for one in sorted(ends, key=lambda one: (one.path.head, abs(place[ends[one][0][0]] - place[ends[one][0][1]]))):
        head, pairs = one.path.head, ends[one]
        shares = [float(attention[(*head, *map(roles.names.index, pair))]) for pair in pairs if attention is not None]
        seen = " to ".join(dict.fromkeys(f"{choose(shares):.2f}" for choose in (min, max))) if shares else ""
        title = (str(one.path), one.label, seen and f"attention {seen}", one.state)
        arrows = [
            _arrow(place[target], place[source], low[head], share)
            for (source, target), share in zip(pairs, shares or [UNKNOWN] * len(pairs), strict=True)
        ]
        label, at = f"{head} {one.label}".strip(), arrows[0]["at"]
        name = {"path": one.path, "state": one.state, "label": label * (label not in said)}
        if any(other == head and abs(x - at) < LETTER * len(label) for other, x in said.values()):
            arrows[0] |= {"above": 20, "side": -arrows[0]["side"]}  # the longer arrow is above, too
        said.setdefault(label, (head, at))
        ink = FAINT if one.state == "removed" else colour(head)
        drawn.append({**name, "arrows": arrows, "ink": ink, "title": "; ".join(filter(None, title)) + PRESS[pressed]})
    sizes: dict[str, Any] = {"margin": MARGIN, "row": ROW, "box": BOX, "tip": TIP, "finger": FINGER, "left": left}
    sizes |= {"width": full_width(place, bool(beside)), "height": 3 * MARGIN + ROW * max(len(rows), 1)}
    lines = [low[above] for above, below in pairwise(top_down) if above.layer != below.layer]
    contents: dict[str, Any] = {"columns": place.items(), "lines": lines, "heads": heads, "paths": drawn}
    contents |= {"pressed": pressed, "smallest": SMALLEST, "faint": FAINT, "dashes": DASHES}
    return render("diagram.svg.jinja", **contents, **sizes)


def _ends(path: AttentionPath, roles: Roles) -> tuple[tuple[str, str], ...]:
    """Return the roles at the ends of a path's arrows: a ``Previous`` head joins roles that are always adjacent."""
    if (path.source, path.target) != PREVIOUS:
        return ((path.source, path.target),)
    order = roles.in_order
    return tuple(roles.adjacent) or tuple(zip(order[1:], order[:-1], strict=True))


def _column(role: str) -> float:
    return max(COLUMN, LETTER * (len(role) + 2))


def _arrow(x1: float, x2: float, low: float, share: float) -> dict[str, Any]:
    """Return an arrow from the bottom of a row to its top, and where its label stands."""
    length, angle = hypot(x2 - x1, ROW - 6), degrees(atan2(6 - ROW, x2 - x1))
    label = {"at": x1 + 0.62 * (x2 - x1), "side": 1 if x2 >= x1 else -1, "above": 0}
    width = THIN + (WIDE - THIN) * min(share, 1.0)
    return {"x": x1, "y": low - 3, "length": length, "angle": angle, "width": width, **label}

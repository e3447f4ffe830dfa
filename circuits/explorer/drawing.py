"""A circuit that is edited, and its interactive drawing: roles across, layers upwards, one arrow for each path.

The attribute ``data-act`` of every head and path names the action for a click, or for a choice with the keyboard. No
information is shown by colour alone: a removed path is dashed, and a head shows its state as text.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import atan2, degrees, hypot

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.figures.diagram import COLOURS, drawn_paths
from circuits.mechanisms.mechanism import SIMPLE, Mechanism
from circuits.mechanisms.one_hot import OneHot
from circuits.roles import Roles

ROW, COLUMN, BOX, MARGIN = 38.0, 76.0, 116.0, 26.0  # sizes, in pixels
THIN, WIDE = 1.2, 6.0  # widths of arrows with attention 0 and 1
TIP = 14.0  # length of an arrow's tip
SMALLEST = 0.85  # the smallest scale at which the text is readable; a drawing that is still too wide scrolls
FAINT = "#8a8a8a"  # readable on white and on black
Arrow = tuple[float, float, float, float, float]  # x and y of its start and of its tip, and the attention along it


@dataclass(frozen=True)
class Draft:
    """A circuit that is edited; every change returns another draft.

    Attributes:
        drawn: the circuit with all paths that are drawn, including those that are removed for now.
        circuit: the circuit that is measured.
    """

    drawn: Circuit
    circuit: Circuit

    @property
    def paths(self) -> dict[AttentionPath, bool]:
        """All paths that are drawn, and whether the circuit has them."""
        return {path: path in self.circuit.paths for path in (*self.drawn.paths, *self.circuit.paths)}

    def state(self, head: Head) -> str:
        """Return the state of a head: ``paths``, ``intact``, or the name of its mechanism."""
        return _state(self.circuit.heads.get(head))

    def toggled(self, path: AttentionPath) -> "Draft":
        """Return the draft with a path removed, or put back.

        Raises:
            BadInput: no such path is drawn.
        """
        present = self.circuit.paths
        if path in present:
            return replace(self, circuit=self.circuit.without(path))
        if path not in self.drawn.paths:
            raise BadInput(f"the circuit has no path {path}")
        circuit = self.circuit.with_head(path.head, self.drawn.heads[path.head])
        for other in circuit.paths:  # the other paths of its head stay removed
            if other.head == path.head and other not in (path, *present):
                circuit = circuit.without(other)
        return replace(self, circuit=circuit)

    def cycled(self, head: Head) -> "Draft":
        """Return the draft with a head in its next state: uniform, identity, previous, as it is drawn, intact."""
        drawn = self.drawn.heads.get(head)
        states: dict[str, Mechanism | None] = {**SIMPLE, _state(drawn): drawn, "intact": None}
        names = [*states]
        mechanism = states[names[(names.index(self.state(head)) + 1) % len(names)]]
        others = self.circuit.without_heads([head])
        return replace(self, circuit=others if mechanism is None else others.with_head(head, mechanism))

    def with_path(self, path: AttentionPath) -> "Draft":
        """Return the draft with one more path, which replaces its head's path from the same role.

        A head that was uniform, identity, previous or intact gets this path only.
        """
        return Draft(_with_path(self.drawn, path), _with_path(self.circuit, path))


def full_width(n_heads: int, n_roles: int) -> float:
    """Return the full width of the drawing, in pixels."""
    return 2 * MARGIN + BOX * n_heads + COLUMN * n_roles


def drawing(
    draft: Draft,
    roles: Roles,
    attention: Float[Tensor, "layer head query_role key_role"],
    chosen: Head,
    labels: Mapping[AttentionPath, str],
) -> str:
    """Draw a draft as SVG.

    Args:
        draft: the draft.
        roles: the roles of some examples.
        attention: the average attention from role to role in the unablated model; arrows are as wide as it is high.
        chosen: the chosen head.
        labels: a label for some paths, such as whether they are needed.
    """
    n_layers, n_heads, *_ = attention.shape
    width, height = full_width(n_heads, len(roles.names)), ROW * n_layers + 2 * MARGIN
    place = {role: MARGIN + BOX * n_heads + COLUMN * (n + 0.5) for n, role in enumerate(roles.in_order)}
    level = [height - MARGIN - ROW * layer for layer in range(n_layers + 1)]
    lines = [
        f'<line x1="{x:g}" x2="{x:g}" y1="{level[0]:g}" y2="{level[-1]:g}" stroke="{FAINT}" opacity=".4"/>'
        f'<text x="{x:g}" y="{height - 6:g}" text-anchor="middle" fill="currentColor">{escape(role)}</text>'
        for role, x in place.items()
    ]
    heads = [
        _head(head, draft.state(head), MARGIN + BOX * head.index, level[head.layer + 1], head == chosen)
        for head in (Head(layer, index) for layer in range(n_layers) for index in range(n_heads))
    ]
    arrows: dict[AttentionPath, list[Arrow]] = {path: [] for path in draft.paths}  # a ``Previous`` head has several
    for path, source, target in drawn_paths(arrows, roles):
        layer, index = path.head
        share = attention[layer, index, roles.names.index(source), roles.names.index(target)].item()
        arrows[path].append((place[target], level[layer], place[source], level[layer + 1], share))
    layers = sorted({path.head.layer for path in arrows})
    paths = []
    for path, present in draft.paths.items():
        condition = next((one.condition for one in draft.drawn.paths if one == path), None)
        label = "; ".join(filter(None, (condition.text(path.target) if condition else "", labels.get(path))))
        colour = COLOURS[layers.index(path.head.layer) % len(COLOURS)] if present else FAINT
        paths.append(_path(path, arrows[path], present, colour, label))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'style="max-width: 100%; min-width: {SMALLEST * width:g}px; height: auto" '
        f'font-family="system-ui, sans-serif" font-size="12" role="group" aria-label="the circuit">'
        f"{''.join((*lines, *heads, *paths))}</svg>"
    )


def _head(head: Head, state: str, x: float, y: float, chosen: bool) -> str:
    title = f"{head} is {state}; press to change it"
    return (
        f'<g class="head" data-act="head {head}" tabindex="0" role="button" aria-label="{title}"><title>{title}</title>'
        f'<rect x="{x:g}" y="{y + 6:g}" width="{BOX - 10:g}" height="{ROW - 12:g}" rx="4" fill="transparent" '
        f'stroke="currentColor" stroke-width="{2.5 if chosen else 0.7}"/>'
        f'<text x="{x + 8:g}" y="{y + ROW / 2 + 4:g}" fill="currentColor">{head} {state}</text></g>'
    )


def _path(path: AttentionPath, arrows: Sequence[Arrow], present: bool, colour: str, label: str) -> str:
    name, beside = escape(str(path)), f" ({escape(label)})" if label else ""
    attention = " to ".join(dict.fromkeys(f"{choose(share for *_, share in arrows):.2f}" for choose in (min, max)))
    state = "in the circuit; press to remove it" if present else "removed; press to put it back"
    title = f"{name}{beside}, attention {attention}, {state}"
    return (
        f'<g class="path" data-act="path {name}" tabindex="0" role="button" aria-pressed="{str(present).lower()}" '
        f'aria-label="{title}"><title>{title}</title>'
        f"{''.join(_arrow(arrow, colour, not present, label) for arrow in arrows)}</g>"
    )


def _arrow(arrow: Arrow, colour: str, dashed: bool, label: str) -> str:
    x1, y1, x2, y2, attention = arrow
    length, angle = hypot(x2 - x1, y2 - y1), degrees(atan2(y2 - y1, x2 - x1))
    line, tip = f'<line x2="{length - TIP + 1:.1f}"', length - TIP
    dashes = ' stroke-dasharray="5 5"' if dashed else ""
    middle = f'x="{(x1 + x2) / 2 - 14:g}" y="{(y1 + y2) / 2 - 10:g}"'
    beside = f'<text {middle} text-anchor="middle" fill="currentColor">{escape(label)}</text>' if label else ""
    return (
        f'<g transform="translate({x1:g} {y1:g}) rotate({angle:.2f})">{line} stroke="transparent" stroke-width="16"/>'
        f'{line} stroke="{colour}" stroke-width="{THIN + (WIDE - THIN) * attention:.1f}"{dashes}/>'
        f'<polygon points="{length:.1f},0 {tip:.1f},{TIP / 2} {tip:.1f},{-TIP / 2}" fill="{colour}"/></g>{beside}'
    )


def _state(mechanism: Mechanism | None) -> str:
    return "intact" if mechanism is None else "paths" if isinstance(mechanism, OneHot) else mechanism.name


def _with_path(circuit: Circuit, path: AttentionPath) -> Circuit:
    now = circuit.heads.get(path.head)
    row = path.source, path.target
    return circuit.with_head(path.head, now.with_row(*row) if isinstance(now, OneHot) else OneHot([row]))

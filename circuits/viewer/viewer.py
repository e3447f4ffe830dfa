"""Attention viewers: of one model, through its training, and of several models side by side."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup
from transformer_lens import HookedTransformer

from circuits.errors import BadInput
from circuits.figures.page import in_a_frame, render_page
from circuits.problem import Examples
from circuits.utils.files import write_atomically
from circuits.viewer.frames import Frame, chosen, frame


@dataclass(frozen=True, repr=False)
class Viewer:
    """circuitsvis viewers side by side, with a slider where they have several frames.

    In a notebook it shows itself, in a frame that holds all it needs: offline, and whatever the front end makes of
    scripts and styles around it.

    Attributes:
        panels: what stands side by side, by title.
    """

    panels: Mapping[str, tuple[Frame, ...]]

    def to_json(self) -> list[dict[str, Any]]:
        """The panels as viewer.js wants them."""
        return [{"title": title, "frames": [one.to_json() for one in frames]} for title, frames in self.panels.items()]

    def element(self, name: str) -> Markup:
        """For a page that holds circuitsvis already; ``name`` becomes its id."""
        text = json.dumps(self.to_json()).replace("<", "\\u003c")
        script = f'showAttention(document.getElementById("{name}"), {text});'
        return Markup(f'<div id="{name}" class="attention-viewer"></div><script>{script}</script>')

    def page(self, title: str = "Attention") -> str:
        """A self-contained page."""
        return render_page("viewer.html.jinja", title=title, viewer=self.element("viewer"))

    def save(self, path: Path | str) -> None:
        """Write the page.

        Raises:
            BadInput: it cannot be written.
        """
        write_atomically(Path(path), self.page())

    def _repr_html_(self) -> str:
        return in_a_frame(self.page())

    def __repr__(self) -> str:
        heads = [f"{title} {', '.join(map(str, frames[-1].heads))}".strip() for title, frames in self.panels.items()]
        steps = len(next(iter(self.panels.values())))
        return f"Viewer of {'; '.join(heads)}" + (f" at {steps} steps" if steps > 1 else "")


def attention_viewer(
    model: HookedTransformer,
    examples: Examples,
    example: int = 0,
    layer: int | None = None,
    head: int | None = None,
) -> Viewer:
    """The attention on one example; tokens are labelled ``instance:role``. Point at a head to see it, click to lock it.

    Args:
        model: any HookedTransformer without padding.
        examples: what it reads.
        example: which of them.
        layer: whose heads to show; of all layers if it is not given.
        head: the only one of the layer to show; all of them if it is not given.

    Raises:
        BadInput: there is no such example, layer or head.
    """
    return Viewer({"": (frame(model, examples, example, chosen(model, layer, head)),)})


def over_training(
    models: Iterable[tuple[int, HookedTransformer]],
    examples: Examples,
    example: int = 0,
    layer: int | None = None,
    head: int | None = None,
) -> Viewer:
    """The same at every step of a training, with a slider: watch a head emerge.

    Args:
        models: with their steps, such as ``through_training`` gives; one is looked at after the other, so that it may
            always be the same model, with other weights.
        examples: what they read.
        example: which of them.
        layer: whose heads to show; of all layers if it is not given.
        head: the only one of the layer to show; all of them if it is not given.

    Raises:
        BadInput: there is no model, or no such example, layer or head, or one model stands in a list at several steps.
    """
    if isinstance(models, Sequence) and len({id(model) for _, model in models}) < len(models):
        raise BadInput("a list holds one model at several steps, which has the weights of the last one at all of them")
    frames = tuple(frame(model, examples, example, chosen(model, layer, head), step) for step, model in models)
    if not frames:
        raise BadInput("there is no step of training to show")
    return Viewer({"": frames})


def side_by_side(viewers: Mapping[str, Viewer]) -> Viewer:
    """Several viewers as one, under their titles; one slider moves them all.

    Raises:
        BadInput: there is none, one stands beside others already, or their steps differ.
    """
    if not viewers:
        raise BadInput("there is no viewer to show")
    panels = {}
    for title, viewer in viewers.items():
        if len(viewer.panels) > 1:
            raise BadInput(f"{title!r} is several viewers already; expected one")
        (panels[title],) = viewer.panels.values()
    steps = {title: [one.step for one in frames] for title, frames in panels.items()}
    first, *others = steps
    for other in others:
        if steps[other] != steps[first]:
            raise BadInput(f"{other!r} shows steps {steps[other]}, {first!r} {steps[first]}; expected the same ones")
    return Viewer(panels)

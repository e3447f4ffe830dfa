"""Attention viewers; ``retrieval_interp.experiments.viewers`` has them over training, and side by side."""

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from circuits.circuit import Head
from circuits.entrance import entrance
from circuits.errors import whole
from circuits.figures.page import Shown, render_page
from circuits.heads import check_choice
from circuits.model.layers import attention_patterns
from circuits.model.transformer import Transformer
from circuits.results import Result
from circuits.task import Examples
from circuits.utils.tokens import visible

BYTES = 6  # of a page for each number of a pattern
LARGE = 25 * 2**20  # bytes of a page that browsers open slowly


class Frame(Result):
    """Attention patterns of some heads on one example, as viewer.js reads them.

    Attributes:
        step: the training step of the model, if there are several frames.
        tokens: a label for each position: ``instance:role``, after the token if the model has a tokenizer. White space
            in tokens is visible (``·`` for a space), and a token that is no text by itself is shown as ``#399``.
        heads: the names of the heads.
        attention: the patterns, ``[head][query][key]``, rounded to the three decimals that a viewer shows.
    """

    step: int | None
    tokens: list[str]
    heads: list[str]
    attention: list[list[list[float]]]


@dataclass(frozen=True, repr=False)
class Viewer(Shown):
    """circuitsvis viewers side by side, with a slider if they have several frames.

    Attributes:
        panels: the frames of each viewer, by title.
    """

    panels: Mapping[str, tuple[Frame, ...]]

    @property
    def contents(self) -> list[dict[str, Any]]:
        """The panels as viewer.js reads them."""
        return [{"title": title, "frames": [one.model_dump() for one in self.panels[title]]} for title in self.panels]

    def page(self) -> str:
        """Return a self-contained page."""
        return render_page("viewer.html.jinja", viewer=elements([self])[0])

    def __repr__(self) -> str:
        heads = [f"{title} {', '.join(frames[-1].heads)}".strip() for title, frames in self.panels.items()]
        steps = len(next(iter(self.panels.values())))
        return f"Viewer of {'; '.join(heads)}" + (f" at {steps} steps" if steps > 1 else "")


def elements(viewers: Sequence[Viewer]) -> list[Markup]:
    """Return viewers as elements of a page that has circuitsvis, and warn before the page becomes too large."""
    warn_if_large([one for viewer in viewers for panel in viewer.panels.values() for one in panel])
    made = []
    for n, viewer in enumerate(viewers):
        name, contents = f"attention-viewer-{n}", json.dumps(viewer.contents).replace("<", "\\u003c")
        script = f'showAttention(document.getElementById("{name}"), {contents});'
        made.append(Markup(f'<div id="{name}" class="attention-viewer"></div><script>{script}</script>'))
    return made


def warn_if_large(frames: Sequence[Frame]) -> None:
    """Warn if frames take so much that a browser opens them slowly, or not at all."""
    size = BYTES * sum(len(one.heads) * len(one.tokens) ** 2 for one in frames)
    if size > LARGE:
        warnings.warn(
            f"this page becomes about {size >> 20} MiB large, and browsers may not open it; "
            "with fewer heads it is smaller: choose a layer, or one head of it (layer, head)",
            stacklevel=4,
        )


@entrance
def attention_viewer(
    model: Transformer, examples: Examples, example: int = 0, layer: int | None = None, head: int | None = None
) -> Viewer:
    """Show attention on one example, with tokens labelled ``instance:role``.

    Point at a head to show it, click to lock it.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        examples: examples of its task.
        example: the index of the example.
        layer: the layer whose heads are shown; by default all layers.
        head: the index of the head in the layer; by default all heads.

    Raises:
        BadInput: there is no such example, layer or head.
    """
    return Viewer({"": (attention_frame(model, examples, example, layer, head),)})


def attention_frame(
    model: Transformer,
    examples: Examples,
    example: int,
    layer: int | None = None,
    head: int | None = None,
    step: int | None = None,
    heads: Collection[Head] | None = None,
) -> Frame:
    """Return the attention on one example, of all heads, the heads of a layer, one head, or some.

    Raises:
        BadInput: there is no such example, layer or head, or a head is given without its layer.
    """
    whole("the example", example, 0, len(examples) - 1)
    check_choice(layer, head, model.cfg.n_layers, model.cfg.n_heads)
    one = examples.take(slice(example, example + 1))
    shown = {
        str(Head(at, index)): patterns[0, index].double().cpu().numpy().round(3).tolist()
        for at, patterns in attention_patterns(model, one)
        for index in range(model.cfg.n_heads)
        if layer in (None, at) and head in (None, index) and (heads is None or (at, index) in heads)
    }
    labels = one.roles.labels(0, one.inputs.shape[1])
    if model.tokenizer is not None:
        tokens = [visible(model.tokenizer, number) for number in one.inputs[0].tolist()]
        both = zip(tokens, labels, strict=True)
        labels = [token if label.isdecimal() else f"{token}|{label}" for token, label in both]
    return Frame(step=step, tokens=labels, heads=[*shown], attention=[*shown.values()])

"""Attention viewers by circuitsvis, that work offline."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import circuitsvis
from circuitsvis.attention import attention_heads
from circuitsvis.utils.render import RenderedHTML
from markupsafe import Markup
from transformer_lens import HookedTransformer

from circuits.attention import attention_patterns
from circuits.errors import BadInput
from circuits.problem import Examples


def _contents(model: HookedTransformer, examples: Examples, example: int) -> tuple[list[str], list[str], list]:
    """Token labels, head names and rounded patterns ``[head, query, key]`` of one example."""
    if not 0 <= example < len(examples):
        raise BadInput(f"there is no example {example}; there are {len(examples)}, counted from 0")
    one = examples.take(slice(example, example + 1))
    names, patterns = [], []
    for layer, pattern in attention_patterns(model, one):
        names += [f"L{layer}H{head}" for head in range(pattern.shape[1])]
        # Three decimals are all that a viewer shows, and a third of the size.
        patterns += [[[round(v, 3) for v in row] for row in head] for head in pattern[0].tolist()]
    return one.roles.labels(0, one.inputs.shape[1]), names, patterns


def attention_viewer(model: HookedTransformer, examples: Examples, example: int = 0) -> RenderedHTML:
    """The attention of all heads on one example, for a notebook; tokens are labelled ``chain:role``."""
    tokens, names, patterns = _contents(model, examples, example)
    return attention_heads(patterns, tokens, names)


def viewer_data(model: HookedTransformer, examples: Examples, example: int) -> dict[str, Any]:
    """What circuitsvis' ``AttentionHeads`` shows of one example.

    Raises:
        BadInput: there is no such example.
    """
    tokens, names, patterns = _contents(model, examples, example)
    return {"tokens": tokens, "attention": patterns, "attentionHeadNames": names}


@cache
def circuitsvis_code() -> str:
    """circuitsvis itself, which makes ``CircuitsVis``."""
    bundle = Path(circuitsvis.__file__).parent / "dist" / "cdn" / "iife.js"
    return bundle.read_text(encoding="utf-8").removesuffix("//# sourceMappingURL=iife.js.map\n")


def viewer_script() -> str:
    """The same, to stand once on a page."""
    return "<script>" + circuitsvis_code().replace("</script", "<\\/script") + "</script>"


def viewer_elements(model: HookedTransformer, examples: Examples) -> list[Markup]:
    """A viewer for each example, for a page that holds ``viewer_script`` already."""
    elements = []
    for example in range(len(examples)):
        text = json.dumps(viewer_data(model, examples, example)).replace("</", "<\\/")
        name = f"attention-viewer-{example}"
        elements.append(
            Markup(
                f'<div id="{name}" class="attention-viewer"></div>'
                f'<script>CircuitsVis.render("{name}", CircuitsVis.AttentionHeads, {text});</script>'
            )
        )
    return elements

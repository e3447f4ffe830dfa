"""The seam: all that the engine asks of a transformer, one batch of examples at a time.

    embed()                         the residual stream that enters layer 0
    block(layer, residual, ...)     a layer, with functions that change its attention patterns, the queries, keys,
                                    values and outputs of its heads, and the output of its MLP
    read(rows)                      the outputs, from the residual stream after the last layer

``layers`` opens a model and checks once, for each length of sequence, that these add up to what the model computes. A
model that drops changes of its attention patterns, or whose layers do not give its outputs, is refused.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import BadInput
from circuits.model.batching import spread
from circuits.model.state import learned
from circuits.model.transformer import Transformer, check_inputs, is_bridge, run
from circuits.task import Examples

Edit = Callable[[Tensor], Tensor]  # attention patterns of a layer, [run, head, query, key], before and after the change
# Changes of the queries ``q``, keys ``k``, values ``v`` and outputs ``z`` of a layer's heads, [run, pos, head, d_head].
EditHeads = Mapping[str, Callable[[Tensor], Tensor]]
EditMLP = Callable[[Tensor, Tensor], Tensor]  # the input and the output of an MLP, and its output after the change
WRONG_PARTS = (AttributeError, RuntimeError, TypeError, ValueError, IndexError)  # of an architecture with other parts
CHECKED = 4  # examples that a model is checked on, from the first to the last


class Layers(ABC):
    """A transformer on a batch of examples, layer by layer.

    Several runs of the same batch may go through a layer at once; a *run* is then one example of one of them, and all
    examples of the first come first. Several threads may use one model, each with its own ``Layers``.

    Attributes:
        model: the model.
        examples: the batch.
    """

    def __init__(self, model: Transformer, examples: Examples) -> None:
        self.model, self.examples = model, examples

    @abstractmethod
    def embed(self) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream that enters layer 0."""

    @abstractmethod
    def block(
        self,
        layer: int,
        residual: Float[Tensor, "run pos d_model"],
        edit: Edit | None = None,
        heads: EditHeads | None = None,
        mlp: EditMLP | None = None,
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the residual stream after a layer, with its patterns, heads or MLP changed on the way."""

    @abstractmethod
    def read(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_out"]:
        """Return the outputs, from any rows of the residual stream after the last layer."""


def layers(model: Transformer, examples: Examples) -> Layers:
    """Return a model on a batch of examples, layer by layer; the model is checked once for each length.

    Raises:
        BadInput: the model cannot read the examples; changes of its attention patterns have no effect, or its layers
            do not give its outputs.
    """
    check_inputs(model, examples)
    key = "layers", examples.inputs.shape[1], examples.roles.valid is not None
    known = learned(model)
    if key not in known:
        check_edits(model)
        few = examples.take(spread(len(examples), CHECKED, examples.inputs.shape[1], model.cfg))
        _check(_opened(model, few))
        known[key] = True
    return _opened(model, examples)


def _opened(model: Transformer, examples: Examples) -> Layers:
    if is_bridge(model):
        from circuits.model.bridge import BridgeLayers

        return BridgeLayers(model, examples)
    from circuits.model.hooked import HookedLayers

    return HookedLayers(model, examples)


def check_edits(model: Transformer) -> None:
    """Check once that changes of a model's attention patterns have an effect.

    A HookedTransformer needs no check. Some architectures of TransformerBridge compute their attention elsewhere and
    drop the changes, with or without a warning.

    Raises:
        BadInput: they have none, or a layer has no attention patterns.
    """
    if "edits" in learned(model) or not is_bridge(model):
        return
    from circuits.model.bridge import check_edits_of_bridge

    if check_edits_of_bridge(model):
        learned(model)["edits"] = True


@torch.no_grad()
def _check(opened: Layers) -> None:
    """Check that the layers, one after the other, give the model's outputs.

    Raises:
        BadInput: they do not, or cannot be run.
    """
    model, outputs = opened.model, run(opened.model, opened.examples)
    try:
        residual = opened.embed()
        for layer in range(model.cfg.n_layers):
            residual = opened.block(layer, residual)
        again = opened.read(residual.flatten(0, 1)).reshape(outputs.shape)
    except BadInput:
        raise
    except WRONG_PARTS as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{architecture(model)}: the layers cannot be run one by one ({reason})") from error
    valid = opened.examples.roles.valid
    if valid is not None:
        outputs, again = outputs[valid], again[valid]
    if not close(again, outputs):
        off = (again - outputs).abs().max()
        raise BadInput(f"{architecture(model)}: the layers, one by one, do not give its outputs: off by {off:.2g}")


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether two results are the same but for rounding: 0.0003 of the largest number, in single precision."""
    if not expected.isfinite().all():  # nothing to compare; `evaluate` says so
        return True
    return bool((found - expected).abs().max() <= torch.finfo(expected.dtype).eps ** 0.5 * expected.abs().max())


def architecture(model: Transformer) -> str:
    """Return the name of a model's architecture, for messages."""
    cfg = model.cfg
    return getattr(cfg, "architecture", None) or getattr(cfg, "original_architecture", None) or type(model).__name__

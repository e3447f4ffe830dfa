"""The seam: all that the engine asks of a transformer, one batch of examples at a time. Read this file first.

    embed()                         the residual stream that enters layer 0
    block(layer, residual, ...)     a layer, with functions that change its attention patterns, and the queries, keys,
                                    values and outputs of its heads
    read(rows)                      the outputs, from the residual stream after the last layer

``layers`` opens a model and checks once, for each length of sequence, that these add up to what the model computes. A
model that drops changes of its attention patterns, or whose layers do not give its outputs, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from circuits.errors import BadInput
from circuits.model.block import after_mlp, is_like_gpt2, normalised
from circuits.model.state import learned
from circuits.model.transformer import Transformer, attention_mask, check_inputs, is_bridge, run, spread
from circuits.task import Examples

# From this size on, TransformerLens's transposed copy of the unembedding in every run takes longer than the product.
LARGE_VOCABULARY = 2**12
WRONG_PARTS = (AttributeError, RuntimeError, TypeError, ValueError, IndexError)  # of an architecture with other parts
CHECKED = 4  # examples that a model is checked on, from the first to the last

Edit = Callable[[Tensor], Tensor]  # attention patterns of a layer, [run, head, query, key], before and after the change
# Changes of the queries ``q``, keys ``k``, values ``v`` and outputs ``z`` of a layer's heads, [run, pos, head, d_head].
EditHeads = Mapping[str, Callable[[Tensor], Tensor]]


class Layers:
    """A HookedTransformer on a batch of examples, layer by layer; ``bridge.py`` has that of a TransformerBridge.

    Several runs of the same batch may go through a layer at once; a *run* is then one example of one of them, and all
    examples of the first come first. Several threads may use one model, each with its own ``Layers``.

    Attributes:
        model: the model.
        examples: the batch.
    """

    def __init__(self, model: Transformer, examples: Examples) -> None:
        self.model, self.examples = model, examples

    def embed(self) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream that enters layer 0.

        Raises:
            BadInput: the model adds its positional embeddings in every layer (shortformer).
        """
        if self.model.cfg.positional_embedding_type == "shortformer":
            raise BadInput("shortformer positional embeddings are not supported")
        embedded: Tensor = self.model(self.examples.inputs, stop_at_layer=0, **attention_mask(self.examples))
        return embedded

    def block(
        self,
        layer: int,
        residual: Float[Tensor, "run pos d_model"],
        edit: Edit | None = None,
        heads: EditHeads | None = None,
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the residual stream after a layer, with its patterns or heads changed on the way.

        A layer like GPT-2's is run part by part, in two thirds of the time; in half precision, other orders of the same
        sums would differ too much in deep models.
        """
        block, mask = self.model.blocks[layer], attention_mask(self.examples)
        mask = {name: valid.repeat(len(residual) // len(valid), 1) for name, valid in mask.items()}
        with edited(block, edit, heads):
            if not is_like_gpt2(self.model) or residual.dtype in (torch.bfloat16, torch.float16):
                after: Tensor = block(residual, **mask)
                return after
            normal = normalised(block.ln1, residual)
            middle = residual + block.attn(query_input=normal, key_input=normal, value_input=normal, **mask)
            return after_mlp(block, middle.flatten(0, 1)).reshape(residual.shape)

    def read(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_out"]:
        """Return the outputs, from any rows of the residual stream after the last layer."""
        model, unembed = self.model, self.model.unembed
        if unembed.W_U.shape[1] >= LARGE_VOCABULARY and not getattr(model.cfg, "output_logits_soft_cap", 0) > 0:
            final = normalised(model.ln_final, rows) if hasattr(model, "ln_final") else rows
            return torch.addmm(unembed.b_U, final, unembed.W_U)
        outputs: Tensor = model(rows[None], start_at_layer=model.cfg.n_layers)[0]
        return outputs


def layers(model: Transformer, examples: Examples) -> Layers:
    """Return a model on a batch of examples, layer by layer; the model is checked once for each length.

    Raises:
        BadInput: the model cannot read the examples; changes of its attention patterns have no effect, or its layers
            do not give its outputs.
    """
    check_inputs(model, examples)
    kind, known = Layers, learned(model)
    if is_bridge(model):
        from circuits.model.bridge import BridgeLayers

        kind = BridgeLayers
    key = "layers", examples.inputs.shape[1], examples.roles.valid is not None
    if key not in known:
        check_edits(model)
        _check(kind(model, examples.take(spread(len(examples), CHECKED, examples.inputs.shape[1], model.cfg))))
        known[key] = True
    return kind(model, examples)


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
    """Check that the layers, one after the other, give the model's outputs; BadInput if they do not, or cannot be
    run.
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
    valid = opened.examples.roles.tokens(outputs.shape[1])
    if not close(again[valid], outputs[valid]):
        off = (again - outputs)[valid].abs().max()
        raise BadInput(f"{architecture(model)}: the layers, one by one, do not give its outputs: off by {off:.2g}")


def close(result: Tensor, expected: Tensor) -> bool:
    """Whether two results are the same but for rounding: 0.0003 of the largest number, in single precision."""
    if not expected.isfinite().all():  # nothing to compare; `evaluate` says so
        return True
    return bool((result - expected).abs().max() <= torch.finfo(expected.dtype).eps ** 0.5 * expected.abs().max())


def architecture(model: Transformer) -> str:
    """Return the name of a model's architecture, for messages."""
    cfg = model.cfg
    return getattr(cfg, "architecture", None) or getattr(cfg, "original_architecture", None) or type(model).__name__


@contextmanager
def edited(block: Any, edit: Edit | None, heads: EditHeads | None = None) -> Iterator[None]:
    """Change the patterns of a layer, and the queries, keys, values and outputs of its heads.

    Raises:
        BadInput: nothing went through a hook point.
    """
    attention = block.attn
    d_head = attention.cfg.d_head if hasattr(attention, "cfg") else attention.config.d_head
    called: set[str] = set()

    def changed(name: str, change: Edit) -> Callable[..., Tensor]:
        def put(module: nn.Module, inputs: Any, value: Tensor) -> Tensor:
            called.add(name)
            # some architectures have all heads side by side, and some call view
            by_head = value if name == "pattern" else value.reshape(*value.shape[:2], -1, d_head)
            return change(by_head).reshape(value.shape).contiguous()

        return put

    changes = {**({} if edit is None else {"pattern": edit}), **(heads or {})}
    with ExitStack() as stack:
        for name, change in changes.items():
            point = getattr(attention, f"hook_{name}")
            stack.enter_context(point.register_forward_hook(changed(name, change)))
        yield
    if called != {*changes}:
        raise BadInput("the model was run without its hooks, so that nothing was ablated; expected an uncompiled model")


def residual_in(by_place: tuple[Any, ...], by_name: dict[str, Any]) -> Tensor:
    """Return the residual stream among the arguments of a layer or a norm."""
    return by_place[0] if by_place else by_name["hidden_states"]


def kept(seen: list[Tensor]) -> Edit:
    """Return a change that changes nothing, and keeps what it sees in a list."""

    def keep(value: Tensor) -> Tensor:
        seen.append(value)
        return value

    return keep


def pattern_hook(layer: int) -> str:
    """Return the name of the hook point for a layer's attention patterns, after softmax and mask."""
    return f"blocks.{layer}.attn.hook_pattern"


def output_hook(layer: int) -> str:
    """Return the name of the hook point for the outputs z of a layer's heads."""
    return f"blocks.{layer}.attn.hook_z"


def attention_patterns(
    model: Transformer, examples: Examples
) -> Iterator[tuple[int, Float[Tensor, "batch head query key"]]]:
    """Yield every layer with its attention patterns, at least in single precision; only one layer is in memory.

    Raises:
        BadInput: the layers, one by one, do not give the model's outputs.
    """
    return ((layer, pattern) for layer, pattern, _ in attention(model, examples))


def attention(
    model: Transformer, examples: Examples
) -> Iterator[tuple[int, Float[Tensor, "batch head query key"], Float[Tensor, "batch pos head d_head"]]]:
    """Yield every layer with its attention patterns and the outputs z of its heads, as ``attention_patterns``."""
    opened, seen = layers(model, examples), list[Tensor]()
    with torch.no_grad():
        residual = opened.embed()
    for layer in range(model.cfg.n_layers):
        with torch.no_grad():
            residual = opened.block(layer, residual, kept(seen), {"z": kept(seen)})
        pattern, z = (value.to(torch.promote_types(value.dtype, torch.float32)) for value in seen)
        seen.clear()
        yield layer, pattern, z

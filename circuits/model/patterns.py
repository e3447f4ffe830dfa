"""The attention patterns of a model, layer by layer."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.problem import Examples


def pattern_hook(layer: int) -> str:
    """Return the name of the hook point for a layer's attention patterns, after softmax and mask."""
    return f"blocks.{layer}.attn.hook_pattern"


def attention_patterns(
    model: HookedTransformer, examples: Examples
) -> Iterator[tuple[int, Float[Tensor, "batch head query key"]]]:
    """Yield every layer with its attention patterns on some examples; only one layer is in memory."""
    with torch.no_grad():
        residual = model(examples.inputs, stop_at_layer=0)
    for layer in range(model.cfg.n_layers):
        residual, pattern = _through(model, layer, residual)
        yield layer, pattern


@torch.no_grad()
def _through(
    model: HookedTransformer, layer: int, residual: Float[Tensor, "batch pos d_model"]
) -> tuple[Float[Tensor, "batch pos d_model"], Float[Tensor, "batch head query key"]]:
    """Return the residual stream after a layer, and the layer's attention patterns."""
    seen: list[Tensor] = []
    point = model.blocks[layer].attn.hook_pattern
    handle = point.register_forward_hook(lambda point, inputs, pattern: seen.append(pattern))
    try:
        return model(residual, start_at_layer=layer, stop_at_layer=layer + 1), seen.pop()
    finally:
        handle.remove()

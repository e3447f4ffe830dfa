"""The attention patterns of a model, layer by layer."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.model.edits import kept
from circuits.model.layers import layers
from circuits.model.transformer import Transformer
from circuits.task import Examples


def pattern_hook(layer: int) -> str:
    """Return the name of the hook point for a layer's attention patterns, after softmax and mask."""
    return f"blocks.{layer}.attn.hook_pattern"


def attention_patterns(
    model: Transformer, examples: Examples
) -> Iterator[tuple[int, Float[Tensor, "batch head query key"]]]:
    """Yield every layer with its attention patterns, at least in single precision; only one layer is in memory.

    Raises:
        BadInput: the layers, one by one, do not give the model's outputs.
    """
    opened, seen = layers(model, examples), list[Tensor]()
    with torch.no_grad():
        residual = opened.embed()
    for layer in range(model.cfg.n_layers):
        with torch.no_grad():
            residual = opened.block(layer, residual, kept(seen))
        pattern = seen.pop()
        yield layer, pattern.to(torch.promote_types(pattern.dtype, torch.float32))

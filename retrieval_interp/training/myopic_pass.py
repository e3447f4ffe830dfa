"""The forward pass of myopic training (Wu, Morris and Levine, 2024): a loss trains its own position only.

The outputs are those of the transformer. In the backward pass, what attention reads from other positions counts as
constant, so that the loss at a position has no gradient to the residual streams of other positions.
"""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from circuits.model.transformer import Transformer
from retrieval_interp.training.training_pass import after_mlp, future, normalised, projected, queries_keys_values


def myopic_pass(
    model: Transformer,
    inputs: Float[Tensor, "batch pos d_input"],
    *,
    train_reading: bool = True,
    closed: Mapping[int, Bool[Tensor, "batch head query key"]] | None = None,
) -> Float[Tensor, "batch pos d_vocab_out"]:
    """Return the outputs of a transformer of ``retrieval_interp.models.build``, with myopic gradients.

    Args:
        model: a causal transformer with sequential attention and MLP, as all models of this package.
        inputs: vectors.
        train_reading: whether a loss trains the weights by which its position makes keys and values of what it reads
            from other positions. If not, the keys and values of other positions are constants as a whole.
        closed: by layer, where attention is forbidden (``circuits.ablation.clamping``).
    """
    residual = model.embed(inputs) + model.pos_embed.W_pos[: inputs.shape[1]]
    for layer, block in enumerate(model.blocks):
        shut = (closed or {}).get(layer, future(residual))
        residual = after_mlp(block, residual + myopic_attention(block, residual, shut, train_reading))
    return model.unembed(normalised(getattr(model, "ln_final", nn.Identity()), residual))


def myopic_attention(
    block: Any,
    residual: Float[Tensor, "batch pos d_model"],
    closed: Bool[Tensor, "*batch_head query key"],
    train_reading: bool,
) -> Float[Tensor, "batch pos d_model"]:
    """Return the output of all heads of a layer; only what a position reads from itself has a gradient to its stream.

    Args:
        block: the layer.
        residual: the residual stream before it.
        closed: where attention is forbidden, besides the future.
        train_reading: as in ``myopic_pass``.
    """
    attn = block.attn
    q, k, v = queries_keys_values(attn, normalised(block.ln1, residual))
    other_k, other_v = k.detach(), v.detach()
    if train_reading:
        _, other_k, other_v = queries_keys_values(attn, normalised(block.ln1, residual.detach()))
    itself = torch.eye(residual.shape[1], dtype=torch.bool, device=residual.device)
    scores = torch.where(itself, q @ k.mT, q @ other_k.mT) / attn.attn_scale
    pattern = scores.masked_fill(closed | future(residual), -torch.inf).softmax(-1)
    own = pattern.diagonal(dim1=-2, dim2=-1)[..., None]
    return projected(attn, pattern.masked_fill(itself, 0.0) @ other_v + own * v)

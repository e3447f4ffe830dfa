"""The forward pass for training: the same weights and outputs as the transformer, with fewer and larger products.

One product computes the queries, keys and values of all heads of a layer, and there are no hooks. The last layer writes
only at the positions whose outputs the loss reads. Attention scores and their softmax are in float32 where matrix
products are in bfloat16: scores of trained transformers exceed 100, where bfloat16 has a spacing of 0.5 and more.
"""

from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from circuits.model.block import is_layer_norm
from circuits.model.transformer import Transformer

EVERYWHERE = slice(None)


def training_pass(
    model: Transformer, inputs: Shaped[Tensor, "batch pos *d_input"], positions: slice = EVERYWHERE
) -> Float[Tensor, "batch read d_vocab_out"]:
    """Return the outputs of a transformer of ``retrieval_interp.models.build``, with gradients.

    Args:
        model: a causal transformer with sequential attention and MLP, as all models of this package.
        inputs: vectors ``[batch, pos, d_input]`` or tokens ``[batch, pos]``.
        positions: the positions whose outputs are returned.
    """
    residual = model.embed(inputs) + model.pos_embed.W_pos[: inputs.shape[1]]
    *lower, last = model.blocks
    for block in lower:
        residual = layer(block, residual, EVERYWHERE)
    residual = layer(last, residual, positions)
    return model.unembed(normalised(getattr(model, "ln_final", nn.Identity()), residual))


def layer(
    block: Any, residual: Float[Tensor, "batch pos d_model"], positions: slice
) -> Float[Tensor, "batch read d_model"]:
    """Return the residual stream at some positions after a layer."""
    residual = residual[:, positions] + attention(block.attn, normalised(block.ln1, residual), positions)
    if block.cfg.attn_only:
        return residual
    hidden = functional.linear(normalised(block.ln2, residual), block.mlp.W_in.T, block.mlp.b_in)
    return residual + functional.linear(block.mlp.act_fn(hidden), block.mlp.W_out.T, block.mlp.b_out)


def attention(
    attn: Any, x: Float[Tensor, "batch pos d_model"], positions: slice
) -> Float[Tensor, "batch read d_model"]:
    """Return the output of all heads of a layer at some positions, which is added to the residual stream there."""
    weights = torch.cat([attn.W_Q, attn.W_K, attn.W_V])  # [3 head, d_model, d_head]
    biases = torch.cat([attn.b_Q, attn.b_K, attn.b_V])
    joint = functional.linear(x, weights.mT.flatten(0, 1), biases.flatten())
    joint = joint.unflatten(-1, (3, attn.cfg.n_heads, attn.cfg.d_head)).permute(2, 0, 3, 1, 4)
    q, k, v = joint.to(torch.promote_types(joint.dtype, torch.float32))  # each [batch, head, pos, d_head]
    seen = ~torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)[positions]
    with torch.autocast(x.device.type, enabled=False):
        mixed = functional.scaled_dot_product_attention(
            q[:, :, positions], k, v, seen, scale=1 / float(attn.attn_scale)
        )
    return functional.linear(mixed.transpose(1, 2).flatten(2), attn.W_O.flatten(0, 1).T, attn.b_O)


def normalised(norm: Any, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    """Apply a normalization layer to the residual stream."""
    if is_layer_norm(norm):
        return functional.layer_norm(x, x.shape[-1:], norm.w, norm.b, norm.eps)
    return norm(x)

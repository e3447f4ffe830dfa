"""The forward pass for training: the same weights and outputs as the transformer, with fewer and larger products.

One product computes the queries, keys and values of all heads of a layer, and there are no hooks. The last layer writes
only at the positions whose outputs the loss reads. Attention scores and their softmax are in float32 where matrix
products are in bfloat16: scores of trained transformers exceed 100, where bfloat16 has a spacing of 0.5 and more.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
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
        residual = layer(block, residual)
    residual = layer(last, residual, positions)
    return model.unembed(normalised(getattr(model, "ln_final", nn.Identity()), residual))


def layer(
    block: Any, residual: Float[Tensor, "batch pos d_model"], positions: slice = EVERYWHERE
) -> Float[Tensor, "batch read d_model"]:
    """Return the residual stream at some positions after a layer."""
    attended = attention(block.attn, normalised(block.ln1, residual), positions)
    return after_mlp(block, residual[:, positions] + attended)


def after_mlp(block: Any, residual: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    """Return the residual stream after the MLP of a layer, which a layer of attention only does not have."""
    if block.cfg.attn_only:
        return residual
    mlp = block.mlp
    hidden = functional.linear(normalised(block.ln2, residual), mlp.W_in.T, mlp.b_in)
    return residual + functional.linear(mlp.act_fn(hidden), mlp.W_out.T, mlp.b_out)


def attention(
    attn: Any, x: Float[Tensor, "batch pos d_model"], positions: slice = EVERYWHERE
) -> Float[Tensor, "batch read d_model"]:
    """Return the output of all heads of a layer at some positions, which is added to the residual stream there."""
    joint = queries_keys_values(attn, x)
    q, k, v = joint.to(torch.promote_types(joint.dtype, torch.float32))
    seen, scale = ~future(x)[positions], 1 / float(attn.attn_scale)
    with torch.autocast(x.device.type, enabled=False):
        mixed = functional.scaled_dot_product_attention(q[:, :, positions], k, v, seen, scale=scale)
    return projected(attn, mixed)


def queries_keys_values(
    attn: Any, x: Float[Tensor, "batch pos d_model"]
) -> Float[Tensor, "three batch head pos d_head"]:
    """Return the queries, keys and values of all heads of a layer, from the normalised residual stream."""
    weights = torch.cat([attn.W_Q, attn.W_K, attn.W_V])  # [3 head, d_model, d_head]
    biases = torch.cat([attn.b_Q, attn.b_K, attn.b_V])
    joint = functional.linear(x, weights.mT.flatten(0, 1), biases.flatten())
    return joint.unflatten(-1, (3, attn.cfg.n_heads, attn.cfg.d_head)).permute(2, 0, 3, 1, 4)


def future(x: Float[Tensor, "batch pos d_model"]) -> Bool[Tensor, "query key"]:
    """Return True where the causal mask forbids attention."""
    return torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)


def projected(attn: Any, mixed: Float[Tensor, "batch head pos d_head"]) -> Float[Tensor, "batch pos d_model"]:
    """Return the output of a layer's heads from their mixed values."""
    return functional.linear(mixed.transpose(1, 2).flatten(2), attn.W_O.flatten(0, 1).T, attn.b_O)


def normalised(norm: Any, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
    """Apply a normalization layer to the residual stream."""
    if is_layer_norm(norm):
        return functional.layer_norm(x, x.shape[-1:], norm.w, norm.b, norm.eps)
    return norm(x)

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

from circuits.model.block import normalised
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
    mlp = block.mlp
    hidden = functional.linear(normalised(block.ln2, residual), mlp.W_in.T, mlp.b_in)
    return residual + functional.linear(mlp.act_fn(hidden), mlp.W_out.T, mlp.b_out)


def attention(
    attn: Any, x: Float[Tensor, "batch pos d_model"], positions: slice = slice(None)
) -> Float[Tensor, "batch read d_model"]:
    """Return what the heads of a causal layer write at some positions, from the normalised residual stream.

    One product computes all queries, keys and values. Scores and softmax are at least in float32, also under autocast.
    """
    weights = torch.cat([attn.W_Q, attn.W_K, attn.W_V])  # [3 head, d_model, d_head]
    biases = torch.cat([attn.b_Q, attn.b_K, attn.b_V])
    joint = functional.linear(x, weights.mT.flatten(0, 1), biases.flatten())
    joint = joint.unflatten(-1, (3, attn.cfg.n_heads, attn.cfg.d_head)).permute(2, 0, 3, 1, 4)
    q, k, v = joint.to(torch.promote_types(joint.dtype, torch.float32))
    seen = ~torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
    with torch.autocast(x.device.type, enabled=False):
        z = functional.scaled_dot_product_attention(
            q[:, :, positions], k, v, seen[positions], scale=1 / float(attn.attn_scale)
        )
    return functional.linear(z.transpose(1, 2).flatten(2), attn.W_O.flatten(0, 1).T, attn.b_O)

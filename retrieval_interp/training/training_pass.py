"""The forward pass for training: the same weights and outputs as the transformer, with fewer and larger products.

One product computes the queries, keys and values of all heads of a layer, and there are no hooks. The last layer writes
only at the positions whose outputs the loss reads. Attention scores and their softmax are in float32 where matrix
products are in bfloat16: scores of trained transformers exceed 100, where bfloat16 has a spacing of 0.5 and more.
"""

from typing import Any

from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn import functional

from circuits.model.block import attention, normalised
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

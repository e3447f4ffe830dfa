"""The MLP and the norms of a transformer block, for any rows of the residual stream."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Rows of an MLP at once on a CPU: its hidden layer then stays in the cache, which halves the time.
MLP_ROWS_AT_ONCE = 512
TANH_GELUS = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # TransformerLens's names for the same function


def is_standard(cfg: Any) -> bool:
    """Whether a block is like GPT-2's: attention, then an optional MLP, each after a norm."""
    return not (
        cfg.parallel_attn_mlp
        or cfg.use_normalization_before_and_after
        or cfg.use_attn_in
        or cfg.use_split_qkv_input
        or cfg.clip_qkv is not None
        or cfg.load_in_4bit
        or cfg.n_key_value_heads is not None
        or cfg.num_experts is not None
        or (cfg.original_architecture or "").startswith("Olmo")
    )


def after_mlp(block: Any, middle: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Return the residual stream after a block, given the residual stream between its attention and its MLP."""
    if not hasattr(block, "mlp"):
        return middle
    at_once = MLP_ROWS_AT_ONCE if middle.device.type == "cpu" else max(1, len(middle))
    return torch.cat([part + _mlp(block.mlp, normalised(block.ln2, part)) for part in middle.split(at_once)])


def is_layer_norm(module: Any) -> bool:
    """Whether a norm is TransformerLens's LayerNorm, with a weight and a bias."""
    return type(module).__name__ == "LayerNorm" and hasattr(module, "w")


def normalised(module: Any, residual: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
    """Return the normalised residual stream."""
    if is_layer_norm(module):  # the same function in one operation instead of six
        return nn.functional.layer_norm(residual, residual.shape[-1:], module.w, module.b, module.eps)
    return module(residual)


def _mlp(module: Any, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Return the output of an MLP; on a CPU, x * sigmoid(2u) gives x / 2 * (1 + tanh(u)) in half the time."""
    if rows.device.type != "cpu" or type(module).__name__ != "MLP" or module.cfg.act_fn not in TANH_GELUS:
        return module(rows[None])[0]
    hidden = torch.addmm(module.b_in, rows, module.W_in)
    slope = math.sqrt(8 / math.pi)
    gate = (hidden * hidden).mul_(0.044715 * slope).add_(slope).mul_(hidden).sigmoid_()
    return torch.addmm(module.b_out, gate.mul_(hidden), module.W_out)

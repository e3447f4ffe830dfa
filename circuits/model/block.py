"""The parts of GPT-2's layer that are faster here than in TransformerLens: norms and MLPs."""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from circuits.model.transformer import Transformer, is_bridge

# Rows of an MLP at once on a CPU: its hidden layer then stays in the cache, which halves the time.
MLP_ROWS_AT_ONCE = 512
TANH_GELUS = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # TransformerLens's names for the same function
# Fields of a config that are true, and ones that are given, where layers are of another kind.
OTHER = ("parallel_attn_mlp", "use_normalization_before_and_after", "use_attn_in", "use_split_qkv_input")
GIVEN = ("clip_qkv", "n_key_value_heads", "num_experts")


def is_like_gpt2(model: Transformer) -> bool:
    """Whether a model is a HookedTransformer with layers like GPT-2's: attention, then an MLP, each after a norm."""
    cfg = model.cfg
    return not (
        is_bridge(model)
        or any(getattr(cfg, name, False) for name in (*OTHER, "load_in_4bit"))
        or any(getattr(cfg, name, None) is not None for name in GIVEN)
        or str(getattr(cfg, "original_architecture", "")).startswith("Olmo")
    )


def after_mlp(block: Any, middle: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Return the residual stream after a block, given the residual stream between its attention and its MLP."""
    if not hasattr(block, "mlp"):
        return middle
    at_once = MLP_ROWS_AT_ONCE if middle.device.type == "cpu" else max(1, len(middle))
    return torch.cat([part + _mlp(block.mlp, normalised(block.ln2, part)) for part in middle.split(at_once)])


def normalised(module: Any, residual: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
    """Return the normalised residual stream."""
    if type(module).__name__ == "LayerNorm" and hasattr(module, "w"):  # the same in one operation instead of six
        return functional.layer_norm(residual, residual.shape[-1:], module.w, module.b, module.eps)
    return module(residual)


def _mlp(module: Any, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """Return the output of an MLP; on a CPU, x * sigmoid(2u) gives x / 2 * (1 + tanh(u)) in half the time."""
    slow = rows.device.type != "cpu" or torch.is_grad_enabled()  # a gradient allows no operation in place
    if slow or type(module).__name__ != "MLP" or module.cfg.act_fn not in TANH_GELUS:
        return module(rows[None])[0]
    hidden = torch.addmm(module.b_in, rows, module.W_in)
    slope = math.sqrt(8 / math.pi)
    gate = (hidden * hidden).mul_(0.044715 * slope).add_(slope).mul_(hidden).sigmoid_()
    return torch.addmm(module.b_out, gate.mul_(hidden), module.W_out)

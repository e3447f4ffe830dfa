"""A transformer like GPT-2 with the names of TransformerLens 3's HookedTransformer, for TransformerLens 4.

It has the same weights under the same keys, the same hook points, and outputs that are equal to the last bit on a CPU
with equal versions of PyTorch; ``run_with_cache``, ``run_with_hooks``, ``start_at_layer`` and ``stop_at_layer`` work.
What is not of GPT-2's architecture (rotary embeddings, gated MLPs, ...) is a TransformerBridge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import ActivationCache, HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.utilities.activation_functions import SUPPORTED_ACTIVATIONS
from transformers import PreTrainedTokenizerBase

from circuits.errors import BadInput


@dataclass
class HookedTransformerConfig:
    """The fields of TransformerLens 3's config that a transformer like GPT-2 needs, with the same defaults."""

    n_layers: int
    d_model: int
    n_ctx: int
    d_head: int
    n_heads: int = -1
    d_mlp: Any = None
    act_fn: Any = None
    d_vocab: int = -1
    d_vocab_out: int = -1
    eps: float = 1e-5
    normalization_type: str | None = "LN"
    attn_only: bool = False
    use_attn_scale: bool = True
    attn_scale: float = -1.0
    attention_dir: str = "causal"
    positional_embedding_type: str = "standard"
    init_weights: bool = True
    initializer_range: float = -1.0
    seed: int | None = None
    device: str | None = None
    dtype: torch.dtype = torch.float32
    model_name: str = "custom"

    def __post_init__(self) -> None:
        if self.positional_embedding_type != "standard":
            raise BadInput(f"{self.positional_embedding_type} positions take TransformerLens 3.9; expected standard")
        if self.normalization_type not in ("LN", "LNPre", None):
            raise BadInput(f"normalization_type is {self.normalization_type!r}; expected LN, LNPre or None")
        if self.n_heads == -1:
            self.n_heads = self.d_model // self.d_head
        if not self.attn_only:
            if self.act_fn not in SUPPORTED_ACTIVATIONS or self.act_fn.endswith("_ln"):
                raise BadInput(f"act_fn is {self.act_fn!r}; expected one of {', '.join(SUPPORTED_ACTIVATIONS)}")
            self.d_mlp = self.d_mlp or 4 * self.d_model
        self.d_vocab_out = self.d_vocab if self.d_vocab_out == -1 else self.d_vocab_out
        self.initializer_range = 0.8 / math.sqrt(self.d_model) if self.initializer_range < 0 else self.initializer_range
        self.attn_scale = math.sqrt(self.d_head) if self.use_attn_scale and self.attn_scale == -1 else self.attn_scale
        self.device = self.device or ("cuda" if torch.cuda.is_available() else "cpu")


class _Part(nn.Module):
    """A part of the model, with empty weights, biases of zero, scales of one, and hook points."""

    def __init__(self, cfg: HookedTransformerConfig, weights: dict[str, tuple[int, ...]], *points: str) -> None:
        super().__init__()
        self.cfg, self.eps = cfg, cfg.eps
        for name, shape in weights.items():
            made: Any = {"W": torch.empty, "w": torch.ones, "b": torch.zeros}[name[0]]
            self.register_parameter(name, nn.Parameter(made(shape, dtype=cfg.dtype)))
        for name in points:
            self.add_module(f"hook_{name}", HookPoint())

    def __getattr__(self, name: str) -> Any:  # weights and hook points, of any type
        return super().__getattr__(name)


class Embed(_Part):
    """The embedding of tokens."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a row for every token."""
        return self.W_E[tokens]


class PosEmbed(_Part):
    """The embedding of positions."""

    def forward(self, n_positions: int, mask: Tensor | None = None) -> Tensor:
        """Return a row for every position; with a mask they count from the first token."""
        if mask is None:
            return self.W_pos[:n_positions]
        return self.W_pos[(mask.cumsum(dim=1) - 1).clamp(min=0)] * mask[..., None]


class Unembed(_Part):
    """The map from the residual stream to the outputs."""

    def forward(self, residual: Tensor) -> Tensor:
        """Return the outputs."""
        return self.hook_out(functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))


class LayerNormPre(_Part):
    """A LayerNorm without weights."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised residual stream."""
        x = x if x.dtype == torch.float64 else x.float()
        x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        return self.hook_normalized(x / scale).to(self.cfg.dtype)


class LayerNorm(LayerNormPre):
    """A LayerNorm."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised residual stream."""
        return super().forward(x) * self.w + self.b


def _norm(cfg: HookedTransformerConfig) -> nn.Module:
    if cfg.normalization_type is None:
        return nn.Identity()
    if cfg.normalization_type == "LNPre":
        return LayerNormPre(cfg, {}, "scale", "normalized")
    return LayerNorm(cfg, {"w": (cfg.d_model,), "b": (cfg.d_model,)}, "scale", "normalized")


class Attention(_Part):
    """The heads of a layer."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        into, bias = (cfg.n_heads, cfg.d_model, cfg.d_head), (cfg.n_heads, cfg.d_head)
        weights = {"W_Q": into, "b_Q": bias, "W_K": into, "b_K": bias, "W_V": into, "b_V": bias}
        weights |= {"W_O": (cfg.n_heads, cfg.d_head, cfg.d_model), "b_O": (cfg.d_model,)}
        super().__init__(cfg, weights, "k", "q", "v", "z", "attn_scores", "pattern")
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        # Constants in the state of a HookedTransformer.
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool))
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))

    def forward(
        self,
        query_input: Float[Tensor, "batch pos d_model"],
        key_input: Float[Tensor, "batch pos d_model"],
        value_input: Float[Tensor, "batch pos d_model"],
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return what all heads write."""
        q = self.hook_q(self._projected(query_input, self.W_Q, self.b_Q))
        k = self.hook_k(self._projected(key_input, self.W_K, self.b_K))
        v = self.hook_v(self._projected(value_input, self.W_V, self.b_V))
        seen = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device)
        seen = seen.tril() if self.cfg.attention_dir == "causal" else seen
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None].bool()
        scores = (q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / self.attn_scale).masked_fill(~seen, -torch.inf)
        pattern = self.hook_attn_scores(scores).softmax(dim=-1)
        pattern = self.hook_pattern(torch.where(pattern.isnan(), 0.0, pattern)).to(v.dtype)
        z = self.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2))
        return functional.linear(z.flatten(2), self.W_O.permute(2, 0, 1).flatten(1).contiguous(), self.b_O)

    @staticmethod
    def _projected(x: Tensor, weight: Tensor, bias: Tensor) -> Float[Tensor, "batch pos head d_head"]:
        return functional.linear(x, weight.mT.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)


class MLP(_Part):
    """The MLP of a layer."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        into, out = {"W_in": (cfg.d_model, cfg.d_mlp), "b_in": (cfg.d_mlp,)}, {"W_out": (cfg.d_mlp, cfg.d_model)}
        super().__init__(cfg, into | out | {"b_out": (cfg.d_model,)}, "pre", "post")
        self.act_fn = SUPPORTED_ACTIVATIONS[cfg.act_fn]

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Return what the MLP writes."""
        hidden = self.hook_pre(torch.addmm(self.b_in, x.flatten(0, -2), self.W_in).unflatten(0, x.shape[:-1]))
        hidden = self.hook_post(self.act_fn(hidden))
        return torch.addmm(self.b_out, hidden.flatten(0, -2), self.W_out).unflatten(0, x.shape[:-1])


class TransformerBlock(_Part):
    """A layer: attention, then an optional MLP, each after a norm."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        more = () if cfg.attn_only else ("resid_mid", "mlp_out")
        super().__init__(cfg, {}, "resid_pre", "attn_out", "resid_post", *more)
        self.ln1, self.attn = _norm(cfg), Attention(cfg)
        if not cfg.attn_only:
            self.ln2, self.mlp = _norm(cfg), MLP(cfg)

    def forward(
        self, resid_pre: Float[Tensor, "batch pos d_model"], attention_mask: Tensor | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return the residual stream after the layer."""
        residual = self.hook_resid_pre(resid_pre)
        normal = self.ln1(residual)
        residual = residual + self.hook_attn_out(self.attn(normal, normal, normal, attention_mask))
        if not self.cfg.attn_only:
            residual = self.hook_resid_mid(residual)
            residual = residual + self.hook_mlp_out(self.mlp(self.ln2(residual)))
        return self.hook_resid_post(residual)


class HookedTransformer(HookedRootModule):
    """A transformer like GPT-2 over tokens ``[batch, pos]``, with TransformerLens's hook points."""

    def __init__(
        self, cfg: HookedTransformerConfig, tokenizer: PreTrainedTokenizerBase | None = None, **_: object
    ) -> None:
        """Build the model; other arguments of TransformerLens 3's HookedTransformer change nothing."""
        super().__init__()
        self.cfg, self.tokenizer = cfg, tokenizer
        if cfg.d_vocab == -1 and tokenizer is not None:
            cfg.d_vocab = cfg.d_vocab_out = len(tokenizer)
        self.embed, self.hook_embed = Embed(cfg, {"W_E": (cfg.d_vocab, cfg.d_model)}), HookPoint()
        self.pos_embed, self.hook_pos_embed = PosEmbed(cfg, {"W_pos": (cfg.n_ctx, cfg.d_model)}), HookPoint()
        self.blocks = nn.ModuleList(TransformerBlock(cfg) for _ in range(cfg.n_layers))
        if cfg.normalization_type is not None:
            self.ln_final = _norm(cfg)
        self.unembed = Unembed(cfg, {"W_U": (cfg.d_model, cfg.d_vocab_out), "b_U": (cfg.d_vocab_out,)}, "in", "out")
        if cfg.init_weights:
            if cfg.seed is not None:
                torch.manual_seed(cfg.seed)
            for name, parameter in self.named_parameters():
                if "W_" in name:
                    nn.init.normal_(parameter, std=cfg.initializer_range)
        self.to(cfg.device)
        self.setup()

    def input_to_embed(
        self, input: Any, attention_mask: Tensor | None = None, **_: object
    ) -> tuple[Tensor, Tensor, None, Tensor | None]:
        """Return the residual stream that enters layer 0, the tokens, None and the mask."""
        tokens = input[None] if input.ndim == 1 else input
        places = self.pos_embed(tokens.shape[1], attention_mask).expand(*tokens.shape[:2], -1)
        return self.hook_embed(self.embed(tokens)) + self.hook_pos_embed(places), tokens, None, attention_mask

    def forward(
        self,
        input: Any,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """Return the outputs, ``[batch, pos, d_vocab_out]``, or the residual stream that enters a layer.

        Args:
            input: tokens ``[batch, pos]``; the residual stream if there is a layer to start at.
            start_at_layer: the first layer that runs.
            stop_at_layer: the layer before which to stop.
            attention_mask: 0 where there is padding, ``[batch, pos]``.
        """
        residual = input
        if start_at_layer is None:
            residual, _, _, attention_mask = self.input_to_embed(input, attention_mask=attention_mask)
        for layer in range(self.cfg.n_layers)[start_at_layer or 0 : stop_at_layer]:
            residual = self.blocks[layer](residual, attention_mask=attention_mask)
        if stop_at_layer is not None:
            return residual
        outputs: Tensor = self.unembed(getattr(self, "ln_final", nn.Identity())(residual))
        return outputs

    def run_with_cache(
        self, *args: Any, return_cache_object: bool = True, remove_batch_dim: bool = False, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        """Return the outputs and the activations, ``cache["pattern", 3]``."""
        outputs, cache = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kwargs)
        if not return_cache_object:
            return outputs, cache
        return outputs, ActivationCache(cache, self, has_batch_dim=not remove_batch_dim)

    def to(self, device_or_dtype: Any, print_details: bool = False) -> HookedTransformer:
        """Move the model to a device or a precision, and say so in the config."""
        if isinstance(device_or_dtype, torch.dtype):
            self.cfg.dtype = device_or_dtype
        else:
            self.cfg.device = str(device_or_dtype)
        return super().to(device_or_dtype)

    def __getattr__(self, name: str) -> Any:
        """Return the weights of all layers, ``W_Q`` and so on, ``[layer, ...]``, and those of the embeddings."""
        if name in ("W_E", "W_pos", "W_U", "b_U"):
            return getattr({"W_E": self.embed, "W_pos": self.pos_embed}.get(name, self.unembed), name)
        if name[:2] in ("W_", "b_"):
            part = "mlp" if name[2:] in ("in", "out") else "attn"
            return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])
        return super().__getattr__(name)

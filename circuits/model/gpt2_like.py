"""A transformer like GPT-2 with the names of TransformerLens 3's HookedTransformer, for TransformerLens 4.

It has the same weights under the same keys, the same hook points, and outputs that are equal to the last bit on a CPU
with equal versions of PyTorch; ``run_with_cache``, ``run_with_hooks``, ``start_at_layer``, ``stop_at_layer`` and
``past_kv_cache`` work. What is not of GPT-2's architecture (rotary embeddings, gated MLPs, ...) is a TransformerBridge.
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
    init_weights: bool = True
    initializer_range: float = -1.0
    seed: int | None = None
    device: str | None = None
    dtype: torch.dtype = torch.float32
    model_name: str = "custom"
    # The other architectures, which exist as bridges only.
    positional_embedding_type: str = "standard"
    parallel_attn_mlp: bool = False
    use_normalization_before_and_after: bool = False
    use_attn_in: bool = False
    use_split_qkv_input: bool = False
    use_attn_result: bool = False
    load_in_4bit: bool = False
    clip_qkv: float | None = None
    n_key_value_heads: int | None = None
    num_experts: int | None = None
    original_architecture: str | None = None

    def __post_init__(self) -> None:
        plain = HookedTransformerConfig.__dataclass_fields__
        for name in [*plain][[*plain].index("positional_embedding_type") :]:
            if getattr(self, name) != plain[name].default:
                raise BadInput(
                    f"{name} is {getattr(self, name)!r}; a HookedTransformer like that takes TransformerLens 3.9"
                )
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


def _empty(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(*shape, dtype=cfg.dtype))


def _zeros(cfg: HookedTransformerConfig, *shape: int) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, dtype=cfg.dtype))


class Embed(nn.Module):
    """The embedding of tokens."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_E = _empty(cfg, cfg.d_vocab, cfg.d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return a row for every token."""
        return self.W_E[tokens]


class PosEmbed(nn.Module):
    """The embedding of positions."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_pos = _empty(cfg, cfg.n_ctx, cfg.d_model)

    def forward(self, n_positions: int, first: int = 0, mask: Tensor | None = None) -> Tensor:
        """Return a row for every position from ``first`` on; with a mask they count from the first token."""
        if mask is None:
            return self.W_pos[first : first + n_positions]
        return self.W_pos[(mask.cumsum(dim=1) - 1).clamp(min=0)] * mask[..., None]


class Unembed(nn.Module):
    """The map from the residual stream to the outputs."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_U = _empty(cfg, cfg.d_model, cfg.d_vocab_out)
        self.b_U = _zeros(cfg, cfg.d_vocab_out)
        self.hook_in, self.hook_out = HookPoint(), HookPoint()

    def forward(self, residual: Tensor) -> Tensor:
        """Return the outputs."""
        found: Tensor = self.hook_out(functional.linear(self.hook_in(residual), self.W_U.T.contiguous(), self.b_U))
        return found


class LayerNormPre(nn.Module):
    """A LayerNorm without weights."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg, self.eps = cfg, cfg.eps
        self.hook_scale, self.hook_normalized = HookPoint(), HookPoint()

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised residual stream."""
        x = x if x.dtype == torch.float64 else x.float()
        x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        found: Tensor = self.hook_normalized(x / scale).to(self.cfg.dtype)
        return found


class LayerNorm(LayerNormPre):
    """A LayerNorm."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__(cfg)
        self.w = nn.Parameter(torch.ones(cfg.d_model, dtype=cfg.dtype))
        self.b = _zeros(cfg, cfg.d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised residual stream."""
        return super().forward(x) * self.w + self.b


NORMS = {"LN": LayerNorm, "LNPre": LayerNormPre, None: lambda cfg: nn.Identity()}


class Attention(nn.Module):
    """The heads of a layer."""

    hook_attn_scores: Any
    hook_pattern: Any
    hook_z: Any

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.attn_scale = cfg.attn_scale if cfg.use_attn_scale else 1.0
        for name in "QKV":
            setattr(self, f"W_{name}", _empty(cfg, cfg.n_heads, cfg.d_model, cfg.d_head))
            setattr(self, f"b_{name}", _zeros(cfg, cfg.n_heads, cfg.d_head))
        self.W_O, self.b_O = _empty(cfg, cfg.n_heads, cfg.d_head, cfg.d_model), _zeros(cfg, cfg.d_model)
        # Constants in the state of a HookedTransformer.
        self.register_buffer("mask", torch.empty((0, 0), dtype=torch.bool))
        self.register_buffer("IGNORE", torch.tensor(-torch.inf))
        for name in ("k", "q", "v", "z", "attn_scores", "pattern"):
            setattr(self, f"hook_{name}", HookPoint())

    def forward(
        self,
        query_input: Float[Tensor, "batch pos d_model"],
        key_input: Float[Tensor, "batch pos d_model"],
        value_input: Float[Tensor, "batch pos d_model"],
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return what all heads write."""
        given = zip("QKV", (query_input, key_input, value_input), strict=True)
        q, k, v = (getattr(self, f"hook_{name.lower()}")(self._projected(name, x)) for name, x in given)
        if past_kv_cache_entry is not None:
            k, v = past_kv_cache_entry.append(k, v)
        scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1) / self.attn_scale
        before = k.shape[1] - q.shape[1]
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool, device=q.device)
        seen = seen.tril(before) if self.cfg.attention_dir == "causal" else seen
        if attention_mask is not None:
            seen = seen & attention_mask[:, None, None].bool()
        scores = self.hook_attn_scores(scores.masked_fill(~seen, -torch.inf))
        pattern = scores.softmax(dim=-1)
        pattern = self.hook_pattern(torch.where(pattern.isnan(), 0.0, pattern)).to(v.dtype)
        z = self.hook_z((pattern @ v.transpose(1, 2)).transpose(1, 2))
        return functional.linear(z.flatten(2), self.W_O.permute(2, 0, 1).flatten(1).contiguous(), self.b_O)

    def _projected(self, name: str, x: Tensor) -> Float[Tensor, "batch pos head d_head"]:
        weight, bias = getattr(self, f"W_{name}"), getattr(self, f"b_{name}")
        return functional.linear(x, weight.mT.flatten(0, 1), bias.flatten()).unflatten(-1, bias.shape)


class MLP(nn.Module):
    """The MLP of a layer."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        self.act_fn = SUPPORTED_ACTIVATIONS[cfg.act_fn]
        self.W_in, self.b_in = _empty(cfg, cfg.d_model, cfg.d_mlp), _zeros(cfg, cfg.d_mlp)
        self.W_out, self.b_out = _empty(cfg, cfg.d_mlp, cfg.d_model), _zeros(cfg, cfg.d_model)
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_model"]:
        """Return what the MLP writes."""
        hidden = self.hook_pre(torch.addmm(self.b_in, x.flatten(0, -2), self.W_in).unflatten(0, x.shape[:-1]))
        hidden = self.hook_post(self.act_fn(hidden))
        return torch.addmm(self.b_out, hidden.flatten(0, -2), self.W_out).unflatten(0, x.shape[:-1])


class TransformerBlock(nn.Module):
    """A layer: attention, then an optional MLP, each after a norm."""

    hook_resid_pre: Any
    hook_attn_out: Any
    hook_resid_mid: Any
    hook_mlp_out: Any
    hook_resid_post: Any

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        norm = NORMS[cfg.normalization_type]
        self.ln1, self.attn = norm(cfg), Attention(cfg)
        points = ["resid_pre", "attn_out", "resid_post"]
        if not cfg.attn_only:
            self.ln2, self.mlp = norm(cfg), MLP(cfg)
            points += ["resid_mid", "mlp_out"]
        for name in points:
            setattr(self, f"hook_{name}", HookPoint())

    def forward(
        self,
        resid_pre: Float[Tensor, "batch pos d_model"],
        past_kv_cache_entry: Any = None,
        attention_mask: Tensor | None = None,
    ) -> Float[Tensor, "batch pos d_model"]:
        """Return the residual stream after the layer."""
        residual = self.hook_resid_pre(resid_pre)
        normal = self.ln1(residual)
        residual = residual + self.hook_attn_out(self.attn(normal, normal, normal, past_kv_cache_entry, attention_mask))
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
        self.embed, self.hook_embed = Embed(cfg), HookPoint()
        self.pos_embed, self.hook_pos_embed = PosEmbed(cfg), HookPoint()
        self.blocks = nn.ModuleList(TransformerBlock(cfg) for _ in range(cfg.n_layers))
        if cfg.normalization_type is not None:
            self.ln_final = NORMS[cfg.normalization_type](cfg)
        self.unembed = Unembed(cfg)
        if cfg.init_weights:
            if cfg.seed is not None:
                torch.manual_seed(cfg.seed)
            for name, parameter in self.named_parameters():
                if "W_" in name:
                    nn.init.normal_(parameter, std=cfg.initializer_range)
        self.to(cfg.device)
        self.setup()

    def input_to_embed(
        self, input: Any, attention_mask: Tensor | None = None, past_kv_cache: Any = None, **_: object
    ) -> tuple[Tensor, Tensor, None, Tensor | None]:
        """Return the residual stream that enters layer 0, the tokens, None and the mask."""
        tokens = self.to_tokens(input) if isinstance(input, str) else input
        tokens = tokens[None] if tokens.ndim == 1 else tokens
        first = 0 if past_kv_cache is None else past_kv_cache[0].past_keys.shape[1]
        places = self.pos_embed(tokens.shape[1], first, attention_mask).expand(*tokens.shape[:2], -1)
        return self.hook_embed(self.embed(tokens)) + self.hook_pos_embed(places), tokens, None, attention_mask

    def forward(
        self,
        input: Any,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        attention_mask: Tensor | None = None,
        past_kv_cache: Any = None,
    ) -> Tensor:
        """Return the outputs, ``[batch, pos, d_vocab_out]``, or the residual stream that enters a layer.

        Args:
            input: tokens ``[batch, pos]`` or a text; the residual stream if there is a layer to start at.
            start_at_layer: the first layer that runs.
            stop_at_layer: the layer before which to stop.
            attention_mask: 0 where there is padding, ``[batch, pos]``.
            past_kv_cache: TransformerLens's cache of keys and values, for text without padding.
        """
        residual = input
        if start_at_layer is None:
            residual, _, _, attention_mask = self.input_to_embed(
                input, attention_mask=attention_mask, past_kv_cache=past_kv_cache
            )
        layers = range(self.cfg.n_layers)[start_at_layer or 0 : stop_at_layer]
        for layer in layers:
            entry = None if past_kv_cache is None else past_kv_cache[layer]
            residual = self.blocks[layer](residual, past_kv_cache_entry=entry, attention_mask=attention_mask)
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

    def to_tokens(self, text: str | list[str], prepend_bos: bool = True) -> Tensor:
        """Return the tokens of a text, ``[1, pos]``, or of several, padded, ``[batch, pos]``.

        Raises:
            BadInput: the model has no tokenizer.
        """
        if self.tokenizer is None:
            raise BadInput("the model has no tokenizer; expected tokens [batch, pos]")
        texts = [text] if isinstance(text, str) else text
        bos = self.tokenizer.bos_token if prepend_bos and self.tokenizer.bos_token else ""
        found = self.tokenizer(
            [bos + one for one in texts], return_tensors="pt", padding=len(texts) > 1, add_special_tokens=False
        )
        return found["input_ids"].to(self.cfg.device)

    def to_string(self, tokens: Tensor) -> str | list[str]:
        """Return the text of tokens, ``[pos]`` or one, or the texts of several, ``[batch, pos]``."""
        assert self.tokenizer is not None
        if tokens.ndim == 2:
            return [str(self.tokenizer.decode(own)) for own in tokens]
        return str(self.tokenizer.decode(tokens))

    def __getattr__(self, name: str) -> Any:
        """Return the weights of all layers, ``W_Q`` and so on, ``[layer, ...]``, and those of the embeddings."""
        if name in ("W_E", "W_pos", "W_U", "b_U"):
            return getattr({"W_E": self.embed, "W_pos": self.pos_embed}.get(name, self.unembed), name)
        if name[:2] in ("W_", "b_"):
            part = "mlp" if name[2:] in ("in", "out") else "attn"
            return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])
        return super().__getattr__(name)

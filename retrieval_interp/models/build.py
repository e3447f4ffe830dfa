"""The transformers that are trained here: HookedTransformers with GPT-2's initialization.

``VectorTransformer`` reads vectors instead of tokens. All of TransformerLens works on it (``run_with_cache``, hooks,
``start_at_layer``). Its embedding keeps its key and shape, so its state loads strictly into a stock HookedTransformer.
"""

import copy
import math
import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from circuits.errors import BadInput
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from retrieval_interp.tasks.task import TrainableTask


class VectorEmbed(nn.Module):
    """The linear embedding ``x @ W_E`` of input vectors, in place of a token embedding."""

    def __init__(self, cfg: HookedTransformerConfig) -> None:
        super().__init__()
        self.W_E = nn.Parameter(torch.empty(cfg.d_vocab, cfg.d_model, dtype=cfg.dtype))

    def forward(self, x: Float[Tensor, "batch pos d_input"]) -> Float[Tensor, "batch pos d_model"]:
        """Embed every vector, in the precision of the weights."""
        return x.to(self.W_E.dtype) @ self.W_E


class VectorTransformer(HookedTransformer):
    """A HookedTransformer over vectors ``[batch, pos, d_input]``.

    ``cfg.d_vocab`` is the width of an input vector, ``cfg.d_vocab_out`` the width of an output. The inputs contain
    position codes, so ``W_pos`` is zero and frozen.
    """

    def __init__(self, cfg: HookedTransformerConfig, seed: int = 0) -> None:
        """Build the model with GPT-2's initialization from ``seed``; global random generators are not used."""
        cfg = copy.deepcopy(cfg)
        cfg.init_weights = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
            super().__init__(cfg, move_to_device=False)
        self.embed = VectorEmbed(self.cfg)
        self.pos_embed.W_pos.requires_grad_(False)
        initialise_like_gpt2(self, seed)
        self.setup()
        self.to(self.cfg.device, print_details=False)

    def input_to_embed(self, input: Any, *_: Any, **__: Any) -> tuple[Tensor, Tensor, None, None]:
        """Embed vectors, after a check of their shape, since a matrix product would accept wrong shapes."""
        cfg = self.cfg
        if not isinstance(input, Tensor) or input.ndim != 3 or input.shape[-1] != cfg.d_vocab:
            got = list(input.shape) if isinstance(input, Tensor) else type(input).__name__
            raise BadInput(f"the model reads [batch, pos, {cfg.d_vocab}]; got {got}")
        if input.shape[1] > cfg.n_ctx:
            raise BadInput(f"the model reads at most {cfg.n_ctx} positions; got {input.shape[1]}")
        if not input.is_floating_point():
            raise BadInput(f"the model reads floating-point vectors; got {input.dtype}")
        residual = self.hook_embed(self.embed(input))
        return residual + self.hook_pos_embed(self.pos_embed.W_pos[: input.shape[1]]), input, None, None


class TokenTransformer(HookedTransformer):
    """A HookedTransformer over tokens ``[batch, pos]``, with its tokenizer: ``model.to_tokens(text)`` works.

    The position embedding starts as sines and cosines, so that distances between positions can be read from the first
    training step on. It is trained like all other weights.
    """

    def __init__(self, cfg: HookedTransformerConfig, tokenizer: PreTrainedTokenizerBase, seed: int = 0) -> None:
        """Build the model with weights from ``seed``; global random generators are not used."""
        cfg = copy.deepcopy(cfg)
        cfg.init_weights = False
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
            tokenizer = copy.deepcopy(tokenizer)  # TransformerLens modifies it
            super().__init__(cfg, tokenizer, move_to_device=False, default_padding_side="right")
        initialise_like_gpt2(self, seed)
        with torch.no_grad():
            self.pos_embed.W_pos.copy_(wave_codes(cfg.n_ctx, cfg.d_model))
        self.to(self.cfg.device, print_details=False)


def wave_codes(n_positions: int, width: int) -> Float[Tensor, "pos width"]:
    """Return sines and cosines of every position at ``width`` / 2 wavelengths from 2π to 2000π, times 0.1."""
    places = torch.arange(width // 2)
    angle = torch.arange(n_positions)[:, None] * 1000.0 ** (-2 * places / width)
    return 0.1 * torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)


def build(task: TrainableTask, cfg: HookedTransformerConfig, seed: int = 0) -> HookedTransformer:
    """Build the transformer for a task (vectors or tokens), with weights from ``seed``."""
    tokenizer = task.tokenizer
    return VectorTransformer(cfg, seed) if tokenizer is None else TokenTransformer(cfg, tokenizer, seed)


def initialise_like_gpt2(model: HookedTransformer, seed: int) -> None:
    """Initialize all weights as GPT-2 does; biases and W_pos are zero.

    The standard deviation is ``cfg.initializer_range``; for output projections it is divided by sqrt(2 layers).
    """
    generator = torch.Generator().manual_seed(seed)
    deviation = float(model.cfg.initializer_range)
    for name, parameter in model.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        with torch.no_grad():
            if kind.startswith("W_") and kind != "W_pos":
                scale = 1 / math.sqrt(2 * model.cfg.n_layers) if kind in ("W_O", "W_out") else 1.0
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.copy_(deviation * scale * drawn)
            else:
                parameter.fill_(1.0 if kind == "w" else 0.0)

"""One run of the unablated model, from which path patching starts, and what each part of the model wrote in it.

    residual stream = embed + every lower head's z @ W_O + every lower MLP + the lower layers' b_O

The biases b_O are the same at every position, so that exchanging them between positions changes nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import BadInput
from circuits.given import losses_of
from circuits.heads import Head
from circuits.model.layers import close, layers
from circuits.model.transformer import ENTRIES_AT_ONCE, Transformer, sequences_at_once
from circuits.task import Examples, Task
from circuits.tracing.edges import EMBED

PARTS = ("hook_mlp_out", "attn.hook_pattern", "attn.hook_z")
FEWEST = 3  # examples in a batch, so that equal batches have at least two


class Unablated:
    """The activations of the unablated model on a batch of examples.

    Attributes:
        model: the model.
        task: its task.
        examples: the batch.
        example: the index of each example, ``[example, 1]``.
        losses: the loss of each example, ``[example]``.
        residuals: the residual stream that enters every layer, and that after the last, ``[example, pos, d_model]``.
        cache: the activations, by TransformerLens's names.
    """

    def __init__(self, model: Transformer, task: Task, examples: Examples) -> None:
        self.model, self.task, self.examples = model, task, examples
        self.example = torch.arange(len(examples), device=examples.inputs.device)[:, None]
        with torch.no_grad():
            self._opened = layers(model, examples)
            self.residuals = [self._opened.embed()]
            for layer in range(model.cfg.n_layers):
                self.residuals.append(self._opened.block(layer, self.residuals[-1]))
            outputs, self.cache = model.run_with_cache(examples.inputs, names_filter=lambda name: name.endswith(PARTS))
        self.losses = losses_of(task, outputs, examples).mean(dim=1)

    def z(self, head: Head) -> Float[Tensor, "example pos d_head"]:
        """Return what a head mixed from its values."""
        return self.cache[f"blocks.{head.layer}.attn.hook_z"][:, :, head.index]

    @torch.no_grad()
    def losses_above(self, layer: int, residual: Float[Tensor, "example pos d_model"]) -> Float[Tensor, " example"]:
        """Return the losses when the model runs on after a layer, from another residual stream."""
        for above in range(layer + 1, self.model.cfg.n_layers):
            residual = self._opened.block(above, residual)
        outputs = self._opened.read(residual.flatten(0, 1)).unflatten(0, residual.shape[:2])
        return losses_of(self.task, outputs, self.examples).mean(dim=1)

    def written(
        self, layer: int, at: Int[Tensor, "example instance"]
    ) -> Float[Tensor, "sender example instance d_model"]:
        """Return what each sender wrote at some positions, in the order of ``senders_below``.

        Raises:
            BadInput: the parts do not add up to the residual stream.
        """
        blocks, cfg, parts = self.model.blocks, self.model.cfg, [self.residuals[0][self.example, at]]
        for below in range(layer):
            parts += [self.z(Head(below, i))[self.example, at] @ blocks[below].attn.W_O[i] for i in range(cfg.n_heads)]
            parts += [] if cfg.attn_only else [self.cache[f"blocks.{below}.hook_mlp_out"][self.example, at]]
        written = torch.stack(parts)
        biases = [blocks[below].attn.b_O for below in range(layer)]  # None for some architectures
        constant = sum((bias for bias in biases if bias is not None), torch.zeros(()).to(written.device))
        together, residual = written.sum(dim=0) + constant, self.residuals[layer][self.example, at]
        if not close(together, residual):
            furthest = (together - residual).abs().max()
            raise BadInput(
                f"what the parts below layer {layer} write differs from the residual stream by {furthest:.2g}; "
                "expected a model whose heads and MLPs add to it"
            )
        return written


def senders_below(layer: int, cfg: Any) -> tuple[str, ...]:
    """Return all senders that write into the residual stream that enters a layer, from the lowest up."""
    senders = [EMBED]
    for below in range(layer):
        senders += [f"{Head(below, index)}" for index in range(cfg.n_heads)]
        senders += [] if cfg.attn_only else [f"L{below} MLP"]
    return tuple(senders)


def examples_at_once(model: Transformer, examples: Examples) -> int:
    """Return the number of examples in a batch; it bounds the memory of a run and of all patched variants."""
    cfg, n_positions, n_instances = model.cfg, examples.inputs.shape[1], examples.roles.positions.shape[2]
    run = n_positions * (3 * cfg.d_model + cfg.n_heads * (4 * cfg.d_head + n_positions))
    variant = n_instances * 3 * cfg.d_model + n_positions * (cfg.d_head + n_instances)
    n_senders = 2 + cfg.n_layers * (cfg.n_heads + 1)
    entries = ENTRIES_AT_ONCE // (cfg.n_layers * run + n_senders * variant)
    return max(FEWEST, min(entries, sequences_at_once(cfg.n_heads, n_positions)))

"""A run of a model that is kept, so that other runs can branch off from it at any layer and position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry

from circuits.errors import BadInput
from circuits.model.block import after_mlp, is_like_gpt2, normalised
from circuits.model.layers import close, kept, layers
from circuits.model.transformer import Transformer
from circuits.task import Examples


@dataclass(frozen=True)
class KeptRun:
    """The residual streams of one run and, if the model's blocks are like GPT-2's, its keys and values.

    The attention is causal. A run that branches off at a position therefore equals the kept run at all positions before
    it. With the keys and values only the rest is computed; without them, all positions of the layers above are.

    Attributes:
        model: the model.
        examples: the examples.
        residuals: the residual stream before layer 0 and after every layer, ``[batch, pos, d_model]`` each.
        keys: the keys of every layer, ``[batch, pos, head, d_head]`` each, without rotary embeddings; none if the
            blocks are of another kind.
        values: the values of every layer, ``[batch, pos, head, d_head]`` each; none if the blocks are of another kind.
        outputs: the model's outputs.
    """

    model: Transformer
    examples: Examples
    residuals: Sequence[Float[Tensor, "batch pos d_model"]]
    keys: Sequence[Float[Tensor, "batch pos head d_head"]]
    values: Sequence[Float[Tensor, "batch pos head d_head"]]
    outputs: Float[Tensor, "batch pos d_out"]

    @classmethod
    @torch.no_grad()
    def of(cls, model: Transformer, examples: Examples) -> KeptRun:
        """Run a model and keep the run."""
        opened, keys, values = layers(model, examples), list[Tensor](), list[Tensor]()
        see = {"k": kept(keys), "v": kept(values)} if is_like_gpt2(model) else None
        residuals = [opened.embed()]
        for layer in range(model.cfg.n_layers):
            residuals.append(opened.block(layer, residuals[-1], heads=see))
        outputs = opened.read(residuals[-1].flatten(0, 1)).unflatten(0, residuals[-1].shape[:2])
        return cls(model, examples, residuals, keys, values, outputs)

    @torch.no_grad()
    def continued(
        self, layer: int, residual: Float[Tensor, "variant batch tail d_model"]
    ) -> Float[Tensor, "variant batch pos d_out"]:
        """Return the outputs of runs that branch off below a layer.

        Args:
            layer: the first layer to run; ``n_layers`` runs the unembedding only.
            residual: the residual stream before this layer, at the last ``tail`` positions.
        """
        n_variants, n, tail, _ = residual.shape
        first, opened = self.outputs.shape[1] - tail, layers(self.model, self.examples)
        if not self.keys:
            residual = torch.cat([self.residuals[layer][:, :first].expand(n_variants, -1, -1, -1), residual], dim=2)
        rows = residual.flatten(0, 1)
        for above in range(layer, self.model.cfg.n_layers):
            if not self.keys:
                rows = opened.block(above, rows)
                continue
            block = self.model.blocks[above]  # its last positions attend to the kept keys and values of those before
            past = (all_[above][:, :first].repeat(n_variants, 1, 1, 1) for all_ in (self.keys, self.values))
            before = TransformerLensKeyValueCacheEntry(*past, frozen=True)
            normal = normalised(block.ln1, rows)
            middle = rows + block.attn(normal, normal, normal, past_kv_cache_entry=before)
            rows = after_mlp(block, middle.flatten(0, 1)).reshape(rows.shape)
        outputs = opened.read(rows.flatten(0, 1)).unflatten(0, (n_variants, n, -1))
        unchanged = self.outputs[:, : first if self.keys else 0]
        return torch.cat([unchanged.expand(n_variants, -1, -1, -1), outputs], dim=2)


def check_branching(model: Transformer, examples: Examples) -> None:
    """Check on two examples that a run which branches off and changes nothing has the model's own outputs.

    Raises:
        BadInput: there is padding or no causal mask, the model is refused (model/layers.py), or the outputs differ.
    """
    if examples.roles.valid is not None:
        raise BadInput("the examples have padding; expected examples of the same length")
    if not examples.roles.causal:
        raise BadInput("the model attends in both directions; expected one with a causal mask")
    run = KeptRun.of(model, examples.take(slice(0, 2)))
    again = run.continued(0, run.residuals[0][None, :, run.outputs.shape[1] // 2 :])[0]
    if not close(again, run.outputs):
        off = (again - run.outputs).abs().max()
        raise BadInput(f"the model's outputs cannot be computed block by block: they differ by {off:.2g}")

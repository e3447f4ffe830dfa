"""One run of the unablated model, from which path patching starts."""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.given import losses_of
from circuits.heads import Head
from circuits.model.batching import ENTRIES_AT_ONCE
from circuits.model.kept_run import KeptRun, is_like_gpt2
from circuits.model.transformer import Transformer
from circuits.task import Examples, Task

PARTS = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out", *(f"attn.hook_{part}" for part in "qkvz"))
FEWEST = 3  # examples in a batch, so that equal batches have at least two


class Unablated:
    """The activations of the unablated model on a batch of examples.

    Attributes:
        model: the model.
        task: its task.
        examples: the batch.
        example: the index of each example, ``[example, 1]``.
        losses: the loss of each example, ``[example]``.
    """

    def __init__(self, model: Transformer, task: Task, examples: Examples) -> None:
        self.model, self.task, self.examples = model, task, examples
        self.example = torch.arange(len(examples), device=examples.inputs.device)[:, None]
        last = f"blocks.{model.cfg.n_layers - 1}.hook_resid_post"
        outputs, self._cache = model.run_with_cache(
            examples.inputs, names_filter=lambda name: name.endswith((*PARTS, "hook_pattern", last))
        )
        self.losses = losses_of(task, outputs, examples).mean(dim=1)
        layers = range(model.cfg.n_layers)
        residuals = [*(self._cache[f"blocks.{layer}.hook_resid_pre"] for layer in layers), self._cache[last]]
        known = layers if is_like_gpt2(model) else ()
        keys, values = ([self._cache[f"blocks.{layer}.attn.hook_{part}"] for layer in known] for part in "kv")
        self._kept = KeptRun(model, examples, residuals, keys, values, outputs)

    def residual(self, layer: int) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream that enters a layer; ``n_layers`` is the stream after the last."""
        return self._kept.residuals[layer]

    def after_attention(self, layer: int) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream between a layer's attention and its MLP."""
        return self.residual(layer) + self._cache[f"blocks.{layer}.hook_attn_out"]

    def mlp(self, layer: int) -> Float[Tensor, "example pos d_model"]:
        """Return what a layer's MLP writes."""
        return self._cache[f"blocks.{layer}.hook_mlp_out"]

    def part(self, head: Head, part: str) -> Float[Tensor, "example pos d_head"]:
        """Return the queries ``q``, the keys ``k``, the values ``v`` or the mixed values ``z`` of a head."""
        found = self._cache[f"blocks.{head.layer}.attn.hook_{part}"]
        return found[:, :, self.index(head, found.shape[2])]

    def index(self, head: Head, n_heads: int) -> int:
        """Return the index of a head among ``n_heads``; heads share keys and values if there are fewer of these."""
        return head.index * n_heads // int(self.model.cfg.n_heads)

    def pattern(self, head: Head) -> Float[Tensor, "example query key"]:
        """Return a head's attention pattern."""
        return self._cache[f"blocks.{head.layer}.attn.hook_pattern"][:, head.index]

    def losses_above(self, layer: int, residual: Float[Tensor, "example tail d_model"]) -> Float[Tensor, " example"]:
        """Return the losses when the model runs on after a layer, from a residual stream at the last positions."""
        return losses_of(self.task, self._kept.continued(layer + 1, residual[None])[0], self.examples).mean(dim=1)


def examples_at_once(model: Transformer, examples: Examples) -> int:
    """Return the number of examples in a batch; it bounds the memory of a run and of all patched variants."""
    cfg, n_positions, n_instances = model.cfg, examples.inputs.shape[1], examples.roles.positions.shape[2]
    run = n_positions * (3 * cfg.d_model + cfg.n_heads * (4 * cfg.d_head + n_positions))
    variant = n_instances * 3 * cfg.d_model + n_positions * (cfg.d_head + n_instances)
    n_senders = 2 + cfg.n_layers * (cfg.n_heads + 1)
    return max(FEWEST, ENTRIES_AT_ONCE // (cfg.n_layers * run + n_senders * variant))

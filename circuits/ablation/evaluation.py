"""Losses under many ablations: hooks on one layer after the other, and no layer twice for circuits that agree so far.

Circuits are run as a tree. At the root stands the residual stream that enters layer 0; where circuits differ in a
layer, the tree has a branch for each version of it. A branch is one call of the model's own block, with hooks that
replace attention patterns. ``run_ablated`` is the reference: each circuit by itself.

Memory is bounded, whatever the number of circuits and examples: the sequences that run at once have at most
``POSITIONS_AT_ONCE`` positions, and their attention and outputs at most ``ENTRIES_AT_ONCE`` entries.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit, Head, Layer, check_all
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, losses_of, read_positions
from circuits.mechanisms.mechanism import Mechanism, Resample, head_pattern
from circuits.model import transformer
from circuits.model.layers import attention_patterns, layers
from circuits.model.transformer import Transformer, sequences_at_once, windowed
from circuits.task import Examples, Task


@entrance
def evaluate(
    model: Transformer,
    task: Task,
    examples: Examples,
    circuits: Sequence[Circuit],
    progress: Callable[[float], None] | None = None,
) -> Float[Tensor, "circuit example component"]:
    """Return the loss components of every example under every circuit's ablation.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the task with its losses and output roles.
        examples: the examples to run.
        circuits: the ablations; ``Circuit()`` is the unablated model.
        progress: is called with the finished share, 0 to 1, if it is given.

    Raises:
        BadInput: a circuit does not fit the model or the examples, the losses depend on outputs at positions
            that are not output roles, or are not finite; a head is resampled, and the examples have no
            counterfactual inputs; or the model is refused (circuits/model/layers.py).
    """
    losses = torch.empty(len(circuits), len(examples), len(task.loss_components), device=examples.inputs.device)
    done, work = 0, max(1, losses[..., 0].numel())
    for circuit, part, own in each_loss(model, task, examples, circuits):
        losses = losses.to(own.dtype)  # double precision for a model or a loss that has it
        losses[circuit, part] = own
        done += len(own)
        if progress is not None:
            progress(done / work)
    return losses


def each_loss(
    model: Transformer, task: Task, examples: Examples, circuits: Sequence[Circuit]
) -> Iterator[tuple[int, slice, Float[Tensor, "example component"]]]:
    """Yield the index of a circuit, a slice of the examples and the losses there; each circuit has its slices in order.

    Raises:
        BadInput: as ``evaluate``.
    """
    cfg = model.cfg
    layers(model, examples)  # checks the model
    check_reading(model, task, examples)
    examples = replace(examples, roles=windowed(model, examples.roles))
    check_all(circuits, examples.roles, cfg.n_layers, cfg.n_heads)
    resampled = any(isinstance(own, Resample) for circuit in circuits for own in circuit.heads.values())
    if resampled:
        examples.counterfactuals()  # raises if there are none
    n_kept = cfg.n_heads * (cfg.n_layers if resampled else 1)  # heads whose patterns are in memory at once
    n_outputs = cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab
    at_once = sequences_at_once(n_kept, examples.inputs.shape[1], n_outputs)
    for start in range(0, len(examples), at_once):
        part = slice(start, min(start + at_once, len(examples)))
        tree = _Tree(model, task, examples.take(part), circuits)
        with torch.no_grad():
            embedded = tree.opened.embed()
        for members, losses in tree.losses(0, embedded, range(len(circuits))):
            for circuit in members:
                yield circuit, part, losses


class _Tree:
    """Circuits on one batch of examples."""

    def __init__(self, model: Transformer, task: Task, examples: Examples, circuits: Sequence[Circuit]) -> None:
        self.opened, self.task, self.examples, self.circuits = layers(model, examples), task, examples, circuits
        self.n_layers, self.read = model.cfg.n_layers, read_positions(task, examples)
        self.roles = [examples.roles.in_layer(layer) for layer in range(self.n_layers)]
        self.patterns: dict[Hashable, Tensor] = {}

    def losses(
        self, layer: int, residual: Float[Tensor, "example pos d_model"], members: Iterable[int]
    ) -> Iterator[tuple[list[int], Float[Tensor, "example component"]]]:
        """Yield circuits that agree from a layer on, by their indices, with their losses."""
        versions: dict[Layer, list[int]] = {}
        for member in members:
            versions.setdefault(self.circuits[member].layer(layer), []).append(member)
        for heads, agreeing in versions.items():
            after = self._after(layer, residual, heads)
            if layer + 1 < self.n_layers:
                yield from self.losses(layer + 1, after, agreeing)
            else:
                yield agreeing, self._losses(after)

    @torch.no_grad()
    def _after(
        self, layer: int, residual: Float[Tensor, "example pos d_model"], heads: Layer
    ) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream after a layer with some heads replaced."""
        patterns = [(index, self._pattern(Head(layer, index), mechanism)) for index, mechanism in heads]

        def replaced(pattern: Tensor) -> Tensor:
            pattern = pattern.clone()
            for index, own in patterns:
                pattern[:, index] = own.to(pattern.dtype)
            return pattern

        return self.opened.block(layer, residual, replaced if patterns else None)

    def _pattern(self, head: Head, mechanism: Mechanism) -> Float[Tensor, "#example query key"]:
        if isinstance(mechanism, Resample):
            return self._resampled[head.layer][:, head.index]
        roles = self.roles[head.layer]
        key = mechanism, roles.window
        if key not in self.patterns:
            made = head_pattern(head, mechanism, roles, self.examples.inputs.shape[1])
            if sum(own.numel() for own in self.patterns.values()) + made.numel() > transformer.ENTRIES_AT_ONCE:
                self.patterns.clear()
            self.patterns[key] = made
        return self.patterns[key]

    @cached_property
    def _resampled(self) -> list[Float[Tensor, "example head query key"]]:
        """The patterns of every layer on the counterfactual inputs."""
        return [own for _, own in attention_patterns(self.opened.model, self.examples.counterfactuals())]

    @torch.no_grad()
    def _losses(self, residual: Float[Tensor, "example pos d_model"]) -> Float[Tensor, "example component"]:
        """Return the losses; the outputs that the task does not read are NaN, which reveals losses that read them."""
        found = self.opened.read(residual[self.read])
        if not found.isfinite().all():
            raise BadInput("the model's outputs are NaN or infinite")
        outputs = found.new_full((*residual.shape[:2], found.shape[-1]), torch.nan)
        outputs[self.read] = found
        losses = losses_of(self.task, outputs, self.examples, finite=False)
        if not losses.isfinite().all():
            losses_of(self.task, outputs.nan_to_num(), self.examples)  # raises if these are not finite either
            read_at = ", ".join(self.task.output_roles)
            raise BadInput(f"the losses read more than the outputs at the roles {read_at}")
        return losses

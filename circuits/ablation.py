"""Ablation: replace a model's attention patterns with those of a circuit (paper, Appendix E).

``run_ablated`` is the reference: plain hooks, each circuit by itself. ``evaluate`` runs many circuits as a tree. At the
root stands the residual stream that enters layer 0; where circuits differ in a layer, the tree has a branch for each
version of it. A branch is one call of the model's own block, with hooks that replace attention patterns.

Memory is bounded, whatever the number of circuits and examples: the sequences that run at once have at most
``POSITIONS_AT_ONCE`` positions, and their attention and outputs at most ``ENTRIES_AT_ONCE`` entries.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.averages import Averages
from circuits.averages import averages as averages_of
from circuits.circuit import Circuit, Head, Layer, check_all
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, losses_of, read_positions
from circuits.mechanisms.mechanism import Idle, Mechanism, OutputAblation, Resample, head_pattern
from circuits.model import transformer
from circuits.model.layers import attention, check_edits, layers, output_hook, pattern_hook
from circuits.model.transformer import Transformer, attention_mask, check_inputs, run, sequences_at_once, windowed
from circuits.roles import Roles
from circuits.task import Examples, Measured, Task

PARTS = 6  # what enters each of as many parts of the layers is kept for circuits that begin alike
Begun = tuple[Circuit, dict[int, Float[Tensor, "example pos d_model"]]]  # with what entered some layers


@entrance
def ablated(
    model: Transformer, circuit: Circuit, roles: Roles, averages: Averages | None = None
) -> AbstractContextManager[Transformer]:
    """Ablate a model within a ``with`` block: the circuit's heads are replaced, all others are intact.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        circuit: the hypothesis.
        roles: the roles of the batch that will be run, which name its padding (``valid``) if it has any.
        averages: the average outputs of idle heads (``circuits.averages``).

    Returns:
        a context manager; it gives the model, whose outputs are ``[batch, pos, d_out]`` as ever.

    Raises:
        BadInput: the circuit does not fit the model or the roles, or changes of the model's attention have no effect.
            On leaving the block: some of the hooks were not called, because the model was run above or below their
            layers, or not at all, or something (such as torch.compile) ran it without its hooks.
    """
    return ablating(model, circuit, roles, averages)


@contextmanager
def ablating(
    model: Transformer,
    circuit: Circuit,
    roles: Roles,
    averages: Averages | None = None,
    resampled: Mapping[str, Tensor] | None = None,
) -> Iterator[Transformer]:
    """As ``ablated``, for a model that was checked; with the outputs z of another run, by their hook points.

    The hooks are those of TransformerLens, which also act on a run from or to a layer.
    """
    check_edits(model)
    roles = windowed(model, roles)
    circuit.check(roles, model.cfg.n_layers, model.cfg.n_heads)
    silent = {*circuit.layers}

    def override(pattern: Float[Tensor, "batch head query key"], hook: Any, layer: int) -> Tensor:
        silent.discard(layer)
        _check_run(pattern, roles)
        pattern = pattern.clone()
        for index, mechanism in circuit.layer(layer):
            if mechanism not in of_output:
                replacement = head_pattern(Head(layer, index), mechanism, roles.in_layer(layer), pattern.shape[-1])
                pattern[:, index] = replacement.to(pattern.dtype)
        return pattern

    def write(z: Tensor, hook: Any, layer: int) -> Tensor:
        by_head = z.reshape(*z.shape[:2], model.cfg.n_heads, -1).clone()  # some architectures have them side by side
        for index, mechanism in circuit.layer(layer):
            if isinstance(mechanism, Resample) and resampled:
                other = resampled[output_hook(layer)].reshape(by_head.shape)
                by_head[:, :, index] = other[:, :, index]
            elif mechanism in of_output and averages:
                by_head[:, :, index] = averages.output(Head(layer, index), roles, z.shape[1]).to(z.dtype)
        return by_head.reshape(z.shape)

    of_output = [Idle()] * bool(averages) + [Resample()] * bool(resampled)  # others are refused, as without a pattern
    hooks = [(pattern_hook(layer), partial(override, layer=layer)) for layer in sorted(silent)]
    written = {head.layer for head, mechanism in circuit.heads.items() if mechanism in of_output}
    hooks += [(output_hook(layer), partial(write, layer=layer)) for layer in sorted(written)]
    with model.hooks(fwd_hooks=hooks):
        yield model
    if silent:
        raise BadInput(
            f"the ablation of layers {sorted(silent)} did nothing; "
            "expected the model to be run through them, with its hooks"
        )


def _check_run(pattern: Float[Tensor, "batch head query key"], roles: Roles) -> None:
    """Check that an ablated model is run on whole sequences of the batch that the roles belong to; BadInput if it is
    not.
    """
    n, _, queries, keys = pattern.shape
    if queries != keys:
        raise BadInput(
            f"an ablated model was run on {queries} of {keys} positions, as with a cache of keys; "
            "expected whole sequences (generate with use_past_kv_cache=False)"
        )
    if int(roles.positions.max()) >= keys:
        raise BadInput(f"a role is at position {int(roles.positions.max())}; the model was run on {keys} positions")
    if len(roles) != n:
        raise BadInput(f"the roles belong to {len(roles)} examples; the model was run on {n}")


@entrance
def run_ablated(
    model: Transformer, circuit: Circuit, examples: Examples, averages: Averages | None = None
) -> Float[Tensor, "batch pos d_out"]:
    """Return the model's outputs on the examples under the circuit's ablation; ``averages`` are those of idle heads.

    Raises:
        BadInput: as ``ablated``; or a head is resampled, and the examples have no counterfactual inputs.
    """
    return run_replaced(model, circuit, examples, averages)


def run_replaced(
    model: Transformer, circuit: Circuit, examples: Examples, averages: Averages | None
) -> Float[Tensor, "batch pos d_out"]:
    """As ``run_ablated``, for a model that was checked, and that may have hooks."""
    seen: Mapping[str, Tensor] = {}
    if resampled_layers := {head.layer for head, mechanism in circuit.heads.items() if isinstance(mechanism, Resample)}:
        others = examples.counterfactuals()
        check_inputs(model, others)
        names = [output_hook(layer) for layer in resampled_layers]
        options = {"names_filter": names, "return_cache_object": False, **attention_mask(others)}
        _, seen = model.run_with_cache(others.inputs, **options)
    with ablating(model, circuit, examples.roles, averages, seen):
        return run(model, examples)


@entrance
def evaluate(
    model: Transformer,
    task: Task,
    examples: Examples,
    circuits: Sequence[Circuit],
    averages: Averages | None = None,
) -> Float[Tensor, "circuit example component"]:
    """Return the loss components of every example under every circuit's ablation.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the task with its losses and output roles.
        examples: the examples to run.
        circuits: the ablations; ``Circuit()`` is the unablated model.
        averages: the average outputs of idle heads; by default those of ``circuits.averages``, seed 0.

    Raises:
        BadInput: a circuit does not fit the model or the examples, the losses depend on outputs at positions
            that are not output roles, or are not finite; a head is resampled, and the examples have no
            counterfactual inputs; or the model is refused (circuits/model/layers.py).
    """
    losses = torch.empty(len(circuits), len(examples), len(task.loss_components), device=examples.inputs.device)
    for index, part, numbers in each_loss(model, task, examples, circuits, averages):
        measured = numbers[:, : losses.shape[2]]
        losses = losses.to(measured.dtype)  # double precision for a model or a loss that has it
        losses[index, part] = measured
    return losses


def each_loss(
    model: Transformer,
    task: Task,
    examples: Examples,
    circuits: Sequence[Circuit],
    averages: Averages | None = None,
    begun: dict[tuple[int, int], list[Begun]] | None = None,
) -> Iterator[tuple[int, slice, Float[Tensor, "example number"]]]:
    """Yield the index of a circuit, a slice of the examples and the losses there; each circuit has its slices in order.

    Beside the loss components stand the measures of a task that has some (``Measured``). ``begun`` has circuits that
    ran on a slice: one that runs by itself goes on from the last kept layer below which it equals one of these, and is
    added. Model, examples and averages must be the same from call to call.

    Raises:
        BadInput: as ``evaluate``.
    """
    cfg = model.cfg
    layers(model, examples)  # checks the model
    check_reading(model, task, examples)
    examples = replace(examples, roles=windowed(model, examples.roles))
    check_all(circuits, examples.roles, cfg.n_layers, cfg.n_heads)
    ablations = {mechanism for circuit in circuits for mechanism in circuit.heads.values()} & {Idle(), Resample()}
    if Idle() in ablations and averages is None:
        averages = averages_of(model, task)
    if resampled := Resample() in ablations:
        examples.counterfactuals()  # raises if there are none
    n_kept = cfg.n_heads * (cfg.n_layers if resampled else 1)  # heads whose patterns are in memory at once
    at_once = sequences_at_once(n_kept, examples.inputs.shape[1], transformer.outputs_at_a_position(cfg))
    for start in range(0, len(examples), at_once):
        part = slice(start, min(start + at_once, len(examples)))
        tree = _Tree(model, task, examples.take(part), circuits, averages)
        known = begun.setdefault((part.start, part.stop), []) if begun is not None and len(circuits) == 1 else None
        for members, losses in tree.losses(*tree.begin(known), range(len(circuits))):
            for circuit in members:
                yield circuit, part, losses


class _Tree:
    """Circuits on one batch of examples."""

    def __init__(
        self, model: Transformer, task: Task, examples: Examples, circuits: Sequence[Circuit], averages: Averages | None
    ) -> None:
        self.opened, self.task, self.examples, self.circuits = layers(model, examples), task, examples, circuits
        self.averages = averages
        self.n_layers, self.read = model.cfg.n_layers, read_positions(task, examples)
        self.roles = [examples.roles.in_layer(layer) for layer in range(self.n_layers)]
        self.patterns: dict[Hashable, Tensor] = {}
        self.passed: dict[int, Tensor] | None = None

    @torch.no_grad()
    def begin(self, known: list[Begun] | None) -> tuple[int, Float[Tensor, "example pos d_model"]]:
        """Return the layer to begin with and what enters it: the last kept one below which a known circuit is equal."""

        def shared(one: Begun) -> int:
            n = next((n for n in range(self.n_layers) if one[0].layer(n) != self.circuits[0].layer(n)), self.n_layers)
            return max((at for at in one[1] if at <= n), default=0)

        if known is None:
            return 0, self.opened.embed()
        known.sort(key=shared, reverse=True)
        layer = shared(known[0]) if known else 0
        self.passed = {at: residual for at, residual in known[0][1].items() if at <= layer} if known else {}
        known[2:] = [(self.circuits[0], self.passed)]  # the two that share most stay
        return layer, self.passed[layer] if layer else self.opened.embed()

    def losses(
        self, layer: int, residual: Float[Tensor, "example pos d_model"], members: Iterable[int]
    ) -> Iterator[tuple[list[int], Float[Tensor, "example number"]]]:
        """Yield circuits that agree from a layer on, by their indices, with their losses."""
        if layer and layer % -(-self.n_layers // PARTS) == 0 and self.passed is not None:
            self.passed[layer] = residual
        versions: dict[Layer, list[int]] = {}
        for member in members:
            versions.setdefault(self.circuits[member].layer(layer), []).append(member)
        for heads, agreeing in versions.items():
            after = self._after(layer, residual, heads)
            if layer + 1 < self.n_layers:
                yield from self.losses(layer + 1, after, agreeing)
            else:
                if not self.circuits[agreeing[0]].layers and hasattr(self.task, "saw_unablated"):
                    self.task.saw_unablated(self.opened, after)
                yield agreeing, self._losses(after)

    @torch.no_grad()
    def _after(
        self, layer: int, residual: Float[Tensor, "example pos d_model"], heads: Layer
    ) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream after a layer with some heads replaced."""
        by_kind: dict[bool, list[tuple[int, Tensor]]] = {False: [], True: []}
        for index, mechanism in heads:
            of_output = isinstance(mechanism, OutputAblation)
            made = (self._output if of_output else self._pattern)(Head(layer, index), mechanism)
            by_kind[of_output].append((index, made))

        def replaced(values: Tensor, dim: int) -> Tensor:
            values = values.clone()
            for index, new in by_kind[dim == 2]:
                values.select(dim, index).copy_(new)
            return values

        edit = partial(replaced, dim=1) if by_kind[False] else None
        return self.opened.block(layer, residual, edit, {"z": partial(replaced, dim=2)} if by_kind[True] else None)

    def _output(self, head: Head, mechanism: Mechanism) -> Float[Tensor, "#example pos d_head"]:
        if isinstance(mechanism, Resample):
            return self._resampled[head.layer][:, :, head.index]
        assert self.averages is not None
        return self.averages.output(head, self.examples.roles, self.examples.inputs.shape[1])

    def _pattern(self, head: Head, mechanism: Mechanism) -> Float[Tensor, "#example query key"]:
        roles = self.roles[head.layer]
        key = mechanism, roles.window
        if key not in self.patterns:
            made = head_pattern(head, mechanism, roles, self.examples.inputs.shape[1])
            if sum(kept.numel() for kept in self.patterns.values()) + made.numel() > transformer.ENTRIES_AT_ONCE:
                self.patterns.clear()
            self.patterns[key] = made
        return self.patterns[key]

    @cached_property
    def _resampled(self) -> list[Float[Tensor, "example pos head d_head"]]:
        """The outputs z of every layer on the counterfactual inputs."""
        return [z for _, _, z in attention(self.opened.model, self.examples.counterfactuals())]

    @torch.no_grad()
    def _losses(self, residual: Float[Tensor, "example pos d_model"]) -> Float[Tensor, "example number"]:
        """Return the losses and the measures; outputs that the task does not read are NaN, to reveal losses that do."""
        rows = self.opened.read(residual[self.read])
        if not rows.isfinite().all():
            raise BadInput("the model's outputs are NaN or infinite")
        outputs = rows.new_full((*residual.shape[:2], rows.shape[-1]), torch.nan)
        outputs[self.read] = rows
        losses = losses_of(self.task, outputs, self.examples, finite=False)
        if not losses.isfinite().all():
            losses_of(self.task, outputs.nan_to_num(), self.examples)  # raises if these are not finite either
            read_at = ", ".join(self.task.output_roles)
            raise BadInput(f"the losses read more than the outputs at the roles {read_at}")
        if isinstance(self.task, Measured):
            losses = torch.cat([losses, self.task.measured(outputs, self.examples).to(losses)], dim=1)
        return losses

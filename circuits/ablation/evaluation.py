"""Losses under many ablations at once, without repeated or unneeded computation.

Four savings. Each is exact up to rounding, which a deep model with unusual attention can amplify:

    prefix      circuits that agree on the layers so far share one residual stream, a *branch*
    attention   if a circuit replaces all heads of a layer, no queries, keys or scores are computed
    needed      in such layers, only the positions are computed that a loss depends on, by any path
    changed     in a branch, only the positions are computed that differ from those of the first branch, the *trunk*

The remaining positions of all branches go through values, output projection and MLP as one list of rows.

Memory is bounded, whatever the number of circuits and examples. The sequences that run at once have at most
``POSITIONS_AT_ONCE`` positions. The attention of a layer (of all layers, if heads are resampled) and the outputs have
at most ``ENTRIES_AT_ONCE`` entries each; at least one sequence runs. On a CPU, as many such pieces run at
once as PyTorch has threads. They share the entries, and the patterns that a piece keeps have at most twice its share.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from circuits.ablation.branches import Fork, forks
from circuits.circuit import Circuit, Head, check_all
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import check_reading, losses_of, read_positions
from circuits.heads import head_pattern
from circuits.mechanisms.mechanism import Mechanism, Resample
from circuits.model import batching
from circuits.model.batching import sequences_at_once
from circuits.model.layers import layers
from circuits.model.patterns import attention_patterns
from circuits.model.transformer import Transformer
from circuits.model.windows import windowed
from circuits.problem import Examples, Problem
from circuits.utils.cores import on_all_cores, pieces_at_once

FREE = -1.0  # marks the pattern of an intact head; no mechanism has negative weights


@entrance
def evaluate(
    model: Transformer,
    problem: Problem,
    examples: Examples,
    circuits: Sequence[Circuit],
    progress: Callable[[float], None] | None = None,
) -> Float[Tensor, "circuit example component"]:
    """Return the loss components of every example under every circuit's ablation.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        problem: the task with its losses and output roles.
        examples: the examples to run.
        circuits: the ablations; ``Circuit()`` is the unablated model.
        progress: is called with the finished share, 0 to 1, if it is given.

    Raises:
        BadInput: a circuit does not fit the model or the examples, the losses depend on outputs at positions
            that are not output roles, or are not finite; a head is resampled, and the examples have no
            counterfactual inputs; or the model is refused (circuits/model/layers.py).
    """
    losses = torch.empty(len(circuits), len(examples), len(problem.loss_components), device=examples.inputs.device)
    done, work = 0, max(1, losses[..., 0].numel())

    def take(piece: Piece, own: Tensor) -> None:
        nonlocal done, losses
        losses = losses.to(own.dtype)  # double precision for a model or a loss that has it
        losses[piece.circuits, piece.examples] = own
        done += piece.size
        if progress is not None:
            progress(done / work)

    on_all_cores(lambda piece: piece.losses(), pieces(model, problem, examples, circuits), take, losses.device)
    return losses


@dataclass(frozen=True)
class Piece:
    """A part of an evaluation that runs at once.

    Attributes:
        circuits: the indices of the circuits.
        examples: the slice of the examples.
        losses: a function that runs the piece; several pieces may run at once, each in its own thread.
    """

    circuits: Sequence[int]
    examples: slice
    losses: Callable[[], Float[Tensor, "circuit example component"]]

    @property
    def size(self) -> int:
        """The number of sequences."""
        return len(self.circuits) * (self.examples.stop - self.examples.start)


def pieces(model: Transformer, problem: Problem, examples: Examples, circuits: Sequence[Circuit]) -> Iterator[Piece]:
    """Yield the pieces that ``evaluate`` runs; each circuit gets its examples in order.

    Raises:
        BadInput: as ``evaluate``.
    """
    cfg = model.cfg
    layers(model, examples)  # checks the model before several threads use it
    check_reading(model, problem, examples)
    examples = replace(examples, roles=windowed(model, examples.roles))
    check_all(circuits, examples.roles, cfg.n_layers, cfg.n_heads)
    # A circuit with an intact head makes its whole group compute attention, so circuits without one run separately.
    whole = [i for i, circuit in enumerate(circuits) if len(circuit.heads) == cfg.n_layers * cfg.n_heads]
    others = sorted({*range(len(circuits))} - {*whole})
    resampled = any(isinstance(own, Resample) for circuit in circuits for own in circuit.heads.values())
    if resampled:
        examples.counterfactuals()  # raises if there are none
    n_kept = cfg.n_heads * (cfg.n_layers if resampled else 1)  # heads whose patterns are in memory at once
    n_outputs = cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab
    most = sequences_at_once(n_kept, examples.inputs.shape[1], pieces_at_once(examples.inputs.device), n_outputs)
    for group in (others, whole):
        for first in range(0, len(group), most):
            indices = group[first : first + most]
            forked = forks([circuits[i] for i in indices], cfg.n_layers)
            at_once = most // len(indices)
            for start in range(0, len(examples), at_once):
                part = slice(start, min(start + at_once, len(examples)))
                yield Piece(indices, part, partial(_losses, model, problem, examples, part, forked))


def _losses(
    model: Transformer, problem: Problem, examples: Examples, part: slice, forked: Sequence[Fork]
) -> Float[Tensor, "circuit example component"]:
    return Batch(model, problem, examples.take(part)).losses(forked)


class Recent:
    """A cache of tensors; when they have more than ``most`` entries, the cache is emptied."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: dict[Hashable, Tensor] = {}
        self._entries = 0

    def get(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return the tensor of this key; make it if it is not in the cache."""
        if key not in self._made:
            made = make()
            if self._entries + made.numel() > self._most:
                self._made, self._entries = {}, 0
            self._made[key] = made
            self._entries += made.numel()
        return self._made[key]


class Batch:
    """Some examples, and the attention patterns of mechanisms on them."""

    def __init__(self, model: Transformer, problem: Problem, examples: Examples) -> None:
        self.layers, self.problem, self.examples = layers(model, examples), problem, examples
        self.cfg = model.cfg
        self.roles = [examples.roles.in_layer(layer) for layer in range(self.cfg.n_layers)]
        self.n, self.n_positions = examples.inputs.shape[:2]
        most = batching.ENTRIES_AT_ONCE // pieces_at_once(examples.inputs.device)
        self._patterns, self._stacks = Recent(most), Recent(most)

    @torch.no_grad()
    def losses(self, forked: Sequence[Fork]) -> Float[Tensor, "circuit example component"]:
        """Run all layers for all circuits; ``forked`` has the branches of every layer."""
        needed = self._needed(forked)
        residual = self.layers.embed()[None]  # [branch, example, pos, d_model]
        changed = torch.zeros(1, self.n, self.n_positions, dtype=torch.bool, device=residual.device)
        for layer, fork in enumerate(forked):
            parents = torch.tensor(fork.parents, device=residual.device)
            changed = self._changed(layer, fork, changed[parents])
            if self.layers.by_parts(layer) and fork.prescribes(self.cfg.n_heads):
                residual = self._rows(layer, fork, residual, parents, changed, needed[layer])
            else:
                residual = self._whole(layer, fork, residual[parents])
        read = read_positions(self.problem, self.examples)
        found = self.layers.read(residual[:, read].flatten(0, 1)).unflatten(0, (len(residual), -1))
        if found.isnan().any():
            raise BadInput("the model's outputs are NaN")
        losses: dict[int, Tensor] = {}
        for own, branch in zip(found, forked[-1].branches, strict=True):
            outputs = own.new_full((self.n, self.n_positions, own.shape[-1]), torch.nan)  # reveals losses of others
            outputs[read] = own
            given = losses_of(self.problem, outputs, self.examples, finite=False)
            if not given.isfinite().all():
                if not own.isfinite().all():
                    raise BadInput("the model's outputs are infinite")
                losses_of(self.problem, outputs.nan_to_num(), self.examples)  # raises if these are not finite either
                read_at = ", ".join(self.problem.output_roles)
                raise BadInput(f"the losses read more than the outputs at the roles {read_at}")
            losses |= dict.fromkeys(branch.members, given)
        return torch.stack([losses[member] for member in range(len(losses))])

    @cached_property
    def _resampled(self) -> list[Float[Tensor, "example head query key"]]:
        """The patterns of every layer on the counterfactual inputs."""
        return [pattern for _, pattern in attention_patterns(self.layers.model, self.examples.counterfactuals())]

    def _pattern(self, head: Head, mechanism: Mechanism) -> Float[Tensor, "#example query key"]:
        """Return a mechanism's pattern on every example."""
        if isinstance(mechanism, Resample):
            return self._resampled[head.layer][:, head.index]
        roles = self.roles[head.layer]
        key = mechanism, roles.window
        return self._patterns.get(key, lambda: head_pattern(head, mechanism, roles, self.n_positions))

    def _stack(self, layer: int, fork: Fork) -> Float[Tensor, "heads example head query key"]:
        """Return a layer's patterns for all sets of replaced heads; an intact head is ``FREE`` where it may attend."""
        return self._stacks.get(layer, lambda: self._stacked(layer, fork))

    def _stacked(self, layer: int, fork: Fork) -> Float[Tensor, "heads example head query key"]:
        shape = len(fork.by_heads), self.n, self.cfg.n_heads, self.n_positions, self.n_positions
        stack = torch.full(shape, FREE, device=self.examples.inputs.device)
        stack *= self.roles[layer].mask(self.n_positions)
        for own, heads in zip(stack, fork.by_heads, strict=True):
            for index, mechanism in heads:
                own[:, index] = self._pattern(Head(layer, index), mechanism)
        return stack

    def _reach(self, layer: int, fork: Fork) -> Float[Tensor, "heads example query key"]:
        """Return 1 where a position may attend to another through any head, for all sets of replaced heads."""
        return (self._stack(layer, fork) != 0).any(dim=2).float()

    def _needed(self, forked: Sequence[Fork]) -> list[Bool[Tensor, "example pos"]]:
        """Return for every layer the positions of its output that a circuit's loss depends on."""
        needed = [read_positions(self.problem, self.examples)]
        for layer in range(len(forked) - 1, 0, -1):
            reach = self._reach(layer, forked[layer])
            needed.insert(0, needed[0] | (torch.einsum("seqk,eq->ek", reach, needed[0].float()) > 0))
        return needed

    def _changed(
        self, layer: int, fork: Fork, changed: Bool[Tensor, "branch example pos"]
    ) -> Bool[Tensor, "branch example pos"]:
        """Return for every branch the positions that may differ from the trunk's after this layer."""
        stack = self._stack(layer, fork)
        differ = (stack != stack[0]).any(dim=4).any(dim=2)
        seen = torch.einsum("beqk,bek->beq", self._reach(layer, fork)[fork.prescribed], changed.float()) > 0
        after = changed | seen | differ[fork.prescribed]
        after[0] = False
        return after

    def _whole(
        self, layer: int, fork: Fork, residual: Float[Tensor, "branch example pos d_model"]
    ) -> Float[Tensor, "branch example pos d_model"]:
        """Run a layer as the model does, at all positions, with the replaced heads' patterns."""

        def replaced(pattern: Tensor) -> Tensor:
            by_branch = pattern.unflatten(0, (len(fork.branches), -1)).clone()
            for heads, indices in fork.by_heads.items():
                for head, mechanism in heads:
                    by_branch[indices, :, head] = self._pattern(Head(layer, head), mechanism).to(pattern.dtype)
            return by_branch.flatten(0, 1)

        return self.layers.block(layer, residual.flatten(0, 1), replaced).unflatten(0, residual.shape[:2])

    def _rows(
        self,
        layer: int,
        fork: Fork,
        below: Float[Tensor, "parent example pos d_model"],
        parents: Int[Tensor, " branch"],
        changed: Bool[Tensor, "branch example pos"],
        needed: Bool[Tensor, "example pos"],
    ) -> Float[Tensor, "branch example pos d_model"]:
        """Run a layer whose heads are all replaced, at the needed positions that differ from the trunk's."""
        n_branches = len(fork.branches)
        rows = changed & needed
        rows[0] = needed
        seen = torch.einsum("beqk,beq->bek", self._reach(layer, fork)[fork.prescribed], rows.float())
        attended = seen.new_zeros(below.shape[:3]).index_add_(0, parents, seen) > 0
        seen_rows = attended.flatten().nonzero()[:, 0]
        found = self.layers.values(layer, below.flatten(0, 2).index_select(0, seen_rows))
        values = found.new_zeros(*below.shape[:3], *found.shape[1:])
        values.flatten(0, 2).index_copy_(0, seen_rows, found)
        pattern = self._stack(layer, fork)[fork.prescribed].to(values.dtype)
        mixed = torch.einsum("behqk,bekhv->beqhv", pattern, values[parents])
        flat_rows = rows.flatten().nonzero()[:, 0]
        per_branch = self.n * self.n_positions
        from_parent = parents[flat_rows // per_branch] * per_branch + flat_rows % per_branch
        read = mixed.flatten(0, 2).index_select(0, flat_rows)
        ran = self.layers.after(layer, below.flatten(0, 2).index_select(0, from_parent), read)
        trunk = below[parents[0]].clone()
        trunk[needed] = ran[: int(needed.sum())]
        after = trunk.expand(n_branches, -1, -1, -1).clone()
        after.flatten(0, 2).index_copy_(0, flat_rows, ran)
        return after

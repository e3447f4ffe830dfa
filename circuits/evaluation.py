"""Losses under many ablations at once: nothing is computed twice, nothing that no loss reads.

Four savings, each exact but for rounding (which a deep model with odd attention can amplify):

    prefix      circuits that agree on the layers so far share one residual stream, a *branch*
    attention   where a circuit prescribes all heads of a layer, no queries, keys or scores are computed
    needed      of such layers, only the positions that the losses read in the end, by whatever path
    changed     of a branch, only the positions that differ from those of the first branch, the *trunk*

What is left goes through values, output projection and MLP as one list of rows, whatever their branch and position.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformer_lens import HookedTransformer
from transformer_lens.components import MLP, LayerNorm

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.mechanisms import Mechanism
from circuits.problem import Examples, Problem

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**13
# Rows of an MLP at once on a CPU: its hidden layer then stays in the cache, which halves the time.
MLP_ROWS_AT_ONCE = 512
TANH_GELUS = ("gelu_pytorch_tanh", "gelu_new", "gelu_fast")  # TransformerLens's names for one and the same function

LayerHeads = tuple[tuple[int, Mechanism], ...]


@torch.no_grad()
def evaluate(
    model: HookedTransformer,
    problem: Problem,
    examples: Examples,
    circuits: Sequence[Circuit],
    progress: Callable[[float], None] = lambda share: None,
) -> Float[Tensor, "circuit example part"]:
    """Partial losses of every example under every circuit's ablation.

    Args:
        model: any HookedTransformer without padding; only hooks on its attention's patterns are run.
        problem: gives the losses, and says at which roles they read the outputs.
        examples: what to run.
        circuits: the ablations; ``Circuit()`` is none.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: a circuit does not fit the model or the examples, the losses read other outputs or are no finite
            numbers, or the model adds its positional embeddings in every layer (shortformer).
    """
    cfg = model.cfg
    if cfg.positional_embedding_type == "shortformer":
        raise BadInput("shortformer positional embeddings are not supported")
    for circuit in dict.fromkeys(circuits):
        circuit.check(examples.roles, cfg.n_layers, cfg.n_heads)
    # What one circuit leaves free another would have to compute, so whole circuits stay among themselves.
    whole = [i for i, circuit in enumerate(circuits) if len(circuit.heads) == cfg.n_layers * cfg.n_heads]
    partial = sorted({*range(len(circuits))} - {*whole})
    losses = torch.empty(len(circuits), len(examples), len(problem.parts), device=examples.inputs.device)
    done, work = 0, max(1, len(circuits) * len(examples))
    for group in (partial, whole):
        at_once = max(1, POSITIONS_AT_ONCE // (max(1, len(group)) * examples.inputs.shape[1]))
        for start in range(0, len(examples) if group else 0, at_once):
            part = slice(start, min(start + at_once, len(examples)))
            losses[group, part] = Batch(model, problem, examples.take(part)).losses([circuits[i] for i in group])
            done += len(group) * (part.stop - part.start)
            progress(done / work)
    return losses


@dataclass(frozen=True)
class Branch:
    """Circuits that agree so far: who they are, and the branch of the layer below that they come from."""

    members: tuple[int, ...]
    parent: int
    heads: LayerHeads


class Batch:
    """A few examples, and the attention patterns of every mechanism on them."""

    def __init__(self, model: HookedTransformer, problem: Problem, examples: Examples) -> None:
        self.model, self.problem, self.examples = model, problem, examples
        self.n, self.n_positions = examples.inputs.shape[:2]
        self._patterns: dict[LayerHeads, Float[Tensor, "example head query key"]] = {}
        self._reach: dict[LayerHeads, Bool[Tensor, "example query key"]] = {}

    def losses(self, circuits: Sequence[Circuit]) -> Float[Tensor, "circuit example part"]:
        """Run all layers for all circuits; the first one is the trunk."""
        cfg = self.model.cfg
        layers = [[circuit.layer(layer) for circuit in circuits] for layer in range(cfg.n_layers)]
        needed = self._needed(layers)
        branches = [Branch(tuple(range(len(circuits))), 0, ())]
        residual = self.model(self.examples.inputs, stop_at_layer=0)[None]  # [branch, example, pos, d_model]
        changed = torch.zeros(1, self.n, self.n_positions, dtype=torch.bool, device=residual.device)
        for layer, heads in enumerate(layers):
            branches = self._split(branches, heads)
            parents = torch.tensor([branch.parent for branch in branches], device=residual.device)
            changed = self._changed(branches, changed[parents])
            if self._prescribes(branches):
                residual = self._rows(layer, branches, residual, parents, changed, needed[layer])
            else:
                residual = self._whole(layer, branches, residual[parents])
        outputs = self.model(residual.flatten(0, 1), start_at_layer=cfg.n_layers).unflatten(0, residual.shape[:2])
        outputs[:, ~self._read()] = torch.nan  # losses that read there show it
        losses: list[Tensor] = [outputs.new_empty(0)] * len(circuits)
        for index, branch in enumerate(branches):
            own = self.problem.losses(outputs[index], self.examples)
            for member in branch.members:
                losses[member] = own
        stacked = torch.stack(losses)
        if not stacked.isfinite().all():
            if outputs[:, self._read()].isfinite().all():
                raise BadInput(f"the losses read more than the outputs at the roles {', '.join(self.problem.readout)}")
            raise BadInput("the model's outputs are NaN or infinite")
        return stacked

    def _read(self) -> Bool[Tensor, "example pos"]:
        """The positions whose outputs the losses read."""
        read = torch.zeros(self.n, self.n_positions, dtype=torch.bool, device=self.examples.inputs.device)
        for role in self.problem.readout:
            read.scatter_(1, self.examples.roles[role], True)
        return read

    def _split(self, branches: Sequence[Branch], heads: Sequence[LayerHeads]) -> list[Branch]:
        split = []
        for parent, branch in enumerate(branches):
            agreeing: dict[LayerHeads, list[int]] = {}
            for member in branch.members:
                agreeing.setdefault(heads[member], []).append(member)
            split += [Branch(tuple(members), parent, own) for own, members in agreeing.items()]
        return split

    def _pattern(self, heads: LayerHeads) -> Float[Tensor, "example head query key"]:
        """The patterns of the prescribed heads of a layer."""
        if heads not in self._patterns:
            each = [mechanism.pattern(self.examples.roles, self.n_positions) for _, mechanism in heads]
            expanded = [pattern.expand(self.n, -1, -1) for pattern in each]
            self._patterns[heads] = torch.stack(expanded, dim=1)
        return self._patterns[heads]

    def _attends(self, heads: LayerHeads) -> Bool[Tensor, "example query key"]:
        """Which positions each position of a layer may attend to, through any of its heads."""
        if heads not in self._reach:
            if len(heads) == self.model.cfg.n_heads:
                self._reach[heads] = (self._pattern(heads) != 0).any(dim=1)
            else:
                device = self.examples.inputs.device
                causal = torch.ones(self.n_positions, self.n_positions, dtype=torch.bool, device=device).tril()
                self._reach[heads] = causal.expand(self.n, -1, -1)
        return self._reach[heads]

    def _needed(self, layers: Sequence[Sequence[LayerHeads]]) -> list[Bool[Tensor, "example pos"]]:
        """For every layer, the positions of its output that some circuit's loss depends on."""
        needed = [self._read()]
        for heads in reversed(layers[1:]):
            below = needed[0].clone()
            for own in dict.fromkeys(heads):
                below |= (self._attends(own) & needed[0][:, :, None]).any(dim=1)
            needed.insert(0, below)
        return needed

    def _changed(
        self, branches: Sequence[Branch], changed: Bool[Tensor, "branch example pos"]
    ) -> Bool[Tensor, "branch example pos"]:
        """For every branch, the positions that may differ from the trunk's after this layer."""
        after = changed.clone()
        trunk = branches[0].heads
        for heads, indices in _by_heads(branches).items():
            reach = self._attends(heads).float()
            seen = torch.einsum("eqk,bek->beq", reach, changed[indices].float()) > 0
            after[indices] |= seen | self._rows_that_differ(heads, trunk)
        after[0] = False
        return after

    def _rows_that_differ(self, heads: LayerHeads, trunk: LayerHeads) -> Bool[Tensor, "example query"]:
        if heads == trunk:
            return torch.zeros(self.n, self.n_positions, dtype=torch.bool, device=self.examples.inputs.device)
        if [index for index, _ in heads] != [index for index, _ in trunk]:
            return torch.ones(self.n, self.n_positions, dtype=torch.bool, device=self.examples.inputs.device)
        return (self._pattern(heads) != self._pattern(trunk)).any(dim=(1, 3))

    def _is_usual(self) -> bool:
        """Whether a block is GPT-2's: attention, then an MLP or none, each after a norm."""
        cfg = self.model.cfg
        return not (
            cfg.parallel_attn_mlp
            or cfg.use_normalization_before_and_after
            or cfg.use_attn_in
            or cfg.use_split_qkv_input
            or cfg.clip_qkv is not None
            or cfg.load_in_4bit
            or cfg.n_key_value_heads is not None
            or cfg.num_experts is not None
            or (cfg.original_architecture or "").startswith("Olmo")
        )

    def _prescribes(self, branches: Sequence[Branch]) -> bool:
        """Whether a layer can go row by row: all its attention is prescribed."""
        return self._is_usual() and all(len(branch.heads) == self.model.cfg.n_heads for branch in branches)

    def _through_mlp(self, layer: int, middle: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
        """The residual stream after a layer, from that between its attention and its MLP."""
        if self.model.cfg.attn_only:
            return middle
        block = self.model.blocks[layer]
        at_once = MLP_ROWS_AT_ONCE if middle.device.type == "cpu" else max(1, len(middle))
        return torch.cat([part + _mlp(block.mlp, _normalised(block.ln2, part)) for part in middle.split(at_once)])

    def _whole(
        self, layer: int, branches: Sequence[Branch], residual: Float[Tensor, "branch example pos d_model"]
    ) -> Float[Tensor, "branch example pos d_model"]:
        """A layer as the model itself runs it, at all positions, with the prescribed heads replaced."""

        def override(point: nn.Module, inputs: tuple[Tensor, ...], pattern: Tensor) -> Tensor:
            by_branch = pattern.unflatten(0, (len(branches), -1)).clone()
            for heads, branch_indices in _by_heads(branches).items():
                for place, (head, _) in enumerate(heads):
                    by_branch[branch_indices, :, head] = self._pattern(heads)[:, place].to(pattern.dtype)
            return by_branch.flatten(0, 1)

        # PyTorch's own hook: TransformerLens would take all hooks off the model, those of others too.
        block, flat = self.model.blocks[layer], residual.flatten(0, 1)
        handle = block.attn.hook_pattern.register_forward_hook(override)
        try:
            if not self._is_usual():
                return block(flat).unflatten(0, residual.shape[:2])
            normal = _normalised(block.ln1, flat)
            middle = flat + block.attn(query_input=normal, key_input=normal, value_input=normal)
            return self._through_mlp(layer, middle.flatten(0, 1)).reshape(residual.shape)
        finally:
            handle.remove()

    def _rows(
        self,
        layer: int,
        branches: Sequence[Branch],
        below: Float[Tensor, "parent example pos d_model"],
        parents: Int[Tensor, " branch"],
        changed: Bool[Tensor, "branch example pos"],
        needed: Bool[Tensor, "example pos"],
    ) -> Float[Tensor, "branch example pos d_model"]:
        """A layer whose attention is prescribed, at the needed positions that differ from the trunk's."""
        block = self.model.blocks[layer]
        rows = changed & needed
        rows[0] = needed
        attended = torch.zeros(below.shape[:3], dtype=torch.bool, device=below.device)
        for heads, indices in _by_heads(branches).items():
            reach = self._attends(heads).float()
            seen = torch.einsum("eqk,beq->bek", reach, rows[indices].float()) > 0
            for index, own in zip(indices, seen, strict=True):
                attended[branches[index].parent] |= own
        values = below.new_zeros(*below.shape[:3], self.model.cfg.n_heads, self.model.cfg.d_head)
        seen_rows = attended.flatten().nonzero()[:, 0]
        normal = _normalised(block.ln1, below.flatten(0, 2).index_select(0, seen_rows))
        own_values = torch.einsum("rd,hdv->rhv", normal, block.attn.W_V) + block.attn.b_V
        values.flatten(0, 2).index_copy_(0, seen_rows, own_values)
        mixed = below.new_empty(len(branches), *values.shape[1:])
        for heads, indices in _by_heads(branches).items():
            pattern = self._pattern(heads).to(values.dtype)
            mixed[indices] = torch.einsum("ehqk,bekhv->beqhv", pattern, values[parents[indices]])
        after = below[parents[:1]].expand(len(branches), -1, -1, -1).clone()
        flat_rows = rows.flatten().nonzero()[:, 0]
        per_branch = self.n * self.n_positions
        from_parent = parents[flat_rows // per_branch] * per_branch + flat_rows % per_branch
        read = mixed.flatten(0, 2).index_select(0, flat_rows)
        added = torch.einsum("rhv,hvd->rd", read, block.attn.W_O) + block.attn.b_O
        middle = below.flatten(0, 2).index_select(0, from_parent) + added
        middle = self._through_mlp(layer, middle)
        after[0][needed] = middle[: int(needed.sum())]
        after[1:] = after[:1]
        after.flatten(0, 2).index_copy_(0, flat_rows, middle)
        return after


def _normalised(module: nn.Module, residual: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row d_model"]:
    if isinstance(module, LayerNorm):  # the same in one step instead of six
        return nn.functional.layer_norm(residual, residual.shape[-1:], module.w, module.b, module.eps)
    return module(residual)


def _mlp(module: nn.Module, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    """What an MLP adds; on a CPU tanh is slow, and x * sigmoid(2u) is x / 2 * (1 + tanh(u)) in half the time."""
    if rows.device.type != "cpu" or not isinstance(module, MLP) or module.cfg.act_fn not in TANH_GELUS:
        return module(rows[None])[0]
    hidden = torch.addmm(module.b_in, rows, module.W_in)
    slope = math.sqrt(8 / math.pi)
    gate = (hidden * hidden).mul_(0.044715 * slope).add_(slope).mul_(hidden).sigmoid_()
    return torch.addmm(module.b_out, gate.mul_(hidden), module.W_out)


def _by_heads(branches: Sequence[Branch]) -> dict[LayerHeads, list[int]]:
    """The branches by what they prescribe in this layer."""
    found: dict[LayerHeads, list[int]] = {}
    for index, branch in enumerate(branches):
        found.setdefault(branch.heads, []).append(index)
    return found

"""Clamps: attention paths that are forced or forbidden while a model trains.

An ablation replaces the attention of a trained head. A clamp restricts attention during training. It acts on the
attention scores, before the softmax, so every row still sums to one, and all other scores stay trainable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from jaxtyping import Bool, Float

from circuits.circuit import Circuit, Head
from circuits.errors import BadInput
from circuits.mechanisms.one_hot import OneHot
from circuits.model.transformer import Transformer
from circuits.roles import Roles
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Clamp:
    """Paths that are forced or forbidden during training.

    Attributes:
        rows: the target of every source.
        head: the head that is clamped; None for every head.
        forced: whether the paths are forced: the source attends only to the target of its own instance. Otherwise they
            are forbidden: the source attends to the target of no instance. If only the target of its own instance were
            forbidden, the gap would show which instance is its own, and the symbol there could be inferred from the sum
            of all others.
    """

    rows: Mapping[str, str]
    head: Head | None = None
    forced: bool = False

    def closed(self, roles: Roles, n_positions: int) -> Bool[torch.Tensor, "batch query key"]:
        """Return True at ``[example, query, key]`` where the clamp forbids attention.

        Raises:
            BadInput: a role is unknown.
        """
        examples = torch.arange(len(roles), device=roles.positions.device)[:, None]
        shape = (len(roles), n_positions, n_positions)
        closed = torch.zeros(shape, dtype=torch.bool, device=roles.positions.device)
        for source, target in self.rows.items():
            queries, keys = roles[source], roles[target]
            if self.forced:
                closed[examples, queries] = True
                closed[examples, queries, keys] = False
            else:
                closed[examples[..., None], queries[:, :, None], keys[:, None, :]] = True
        return closed


@contextmanager
def clamped(model: Transformer, clamps: Sequence[Clamp], roles: Roles) -> Iterator[Transformer]:
    """Clamp a model within a ``with`` block. Gradients flow through all scores that no clamp forbids.

    Args:
        model: any HookedTransformer; ``torch.compile`` would ignore the clamps.
        clamps: the clamps.
        roles: the roles of the batch that will be run.

    Raises:
        BadInput: a head does not exist, a role is unknown, a path is against the causal mask, or the clamps together
            leave a position nothing to attend to.
    """
    from circuits.model.layers import check_edits  # imports PyTorch
    from circuits.model.windows import windowed

    check_edits(model)
    cfg = model.cfg
    for clamp in clamps:
        as_circuit = Circuit({clamp.head or Head(0, 0): OneHot(clamp.rows)})
        as_circuit.check(roles, cfg.n_layers, cfg.n_heads)
    roles = windowed(model, roles)
    hooks = []
    for layer in range(cfg.n_layers):
        if any(clamp.head is None or clamp.head.layer == layer for clamp in clamps):
            closed = closed_scores(clamps, layer, cfg.n_heads, roles, cfg.n_ctx)
            hooks.append((f"blocks.{layer}.attn.hook_attn_scores", partial(_mask, closed)))
    with model.hooks(fwd_hooks=hooks):
        yield model


def closed_scores(
    clamps: Sequence[Clamp], layer: int, n_heads: int, roles: Roles, n_positions: int
) -> Bool[torch.Tensor, "batch head query key"]:
    """Return where clamps forbid attention in a layer.

    Raises:
        BadInput: a role is unknown, or the clamps together leave a position nothing to attend to.
    """
    shape = (len(roles), n_heads, n_positions, n_positions)
    closed = torch.zeros(shape, dtype=torch.bool, device=roles.positions.device)
    for clamp in clamps:
        if clamp.head is None:
            closed |= clamp.closed(roles, n_positions)[:, None]
        elif clamp.head.layer == layer:
            closed[:, clamp.head.index] |= clamp.closed(roles, n_positions)
    if (closed | ~roles.in_layer(layer).mask(n_positions)).all(dim=-1).any():
        raise BadInput(f"the clamps leave a position in layer {layer} nothing to attend to")
    return closed


def _mask(
    closed: Bool[torch.Tensor, "batch head query key"],
    scores: Float[torch.Tensor, "batch head query key"],
    hook: torch.nn.Module,
) -> Float[torch.Tensor, "batch head query key"]:
    if closed.shape != scores.shape:
        raise BadInput(f"the clamps are for scores of shape {[*closed.shape]}; the model has {[*scores.shape]}")
    return scores.masked_fill(closed, -torch.inf)

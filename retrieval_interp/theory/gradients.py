"""How much each cell of a transformer's grid moves each other cell: gradients between residual streams.

Where the grid says that no path leads (``grid.py``) the gradient is zero, exactly.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.problem import Examples, Problem
from retrieval_interp.theory.grid import Grid


def cell_gradients(
    model: HookedTransformer,
    inputs: Tensor,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Float[Tensor, "to_layer to_pos from_layer from_pos"]:
    """The gradient of every cell in every other, as the norm of what a random direction of the end pulls at the start.

    Layer 0 is before any layer, layer l after l of them. One backward pass for every cell.

    Args:
        model: any HookedTransformer without padding.
        inputs: a batch that the model reads, ``[batch, pos, ...]``; norms are averaged over it.
        seed: of the directions, each of length one.
        progress: is told the finished share, 0 to 1.
    """
    with torch.enable_grad():
        streams, _ = _streams(model, inputs)
    generator = torch.Generator().manual_seed(seed)
    n_cells, n_positions = len(streams), streams[0].shape[1]
    found = torch.zeros(n_cells, n_positions, n_cells, n_positions, dtype=streams[0].dtype)
    for layer, end in enumerate(streams):
        for position in range(n_positions):
            direction = torch.randn(len(end), end.shape[-1], generator=generator).to(end)
            pulled = (end[:, position] * direction / direction.norm(dim=-1, keepdim=True)).sum()
            grads = torch.autograd.grad(pulled, streams[: layer + 1], retain_graph=True, allow_unused=True)
            for below, grad in enumerate(grads):
                if grad is not None:
                    found[layer, position, below] = grad.norm(dim=-1).mean(dim=0).cpu()
            progress((layer * n_positions + position + 1) / (n_cells * n_positions))
    return found


def loss_gradients(model: HookedTransformer, problem: Problem, examples: Examples) -> Float[Tensor, "layer pos"]:
    """The gradient of a problem's loss in every cell: how much what is there is paid for by what is asked later.

    Args:
        model: any HookedTransformer without padding.
        problem: its task.
        examples: of the task; norms are averaged over them.

    Returns:
        norms, layer 0 before any layer.
    """
    with torch.enable_grad():
        streams, outputs = _streams(model, examples.inputs)
        total = problem.losses(outputs, examples).mean(dim=1).sum()
        grads = torch.autograd.grad(total, streams)
    return torch.stack([grad.norm(dim=-1).mean(dim=0).cpu() for grad in grads])


def _streams(model: HookedTransformer, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """The residual stream before any layer and after each, each of them open to gradients; and the model's outputs."""
    streams: list[Tensor] = []
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]

    def keep(stream: Tensor, hook: object) -> Tensor:
        streams.append(stream if stream.requires_grad else stream.detach().requires_grad_())
        return streams[-1]

    outputs = model.run_with_hooks(inputs, fwd_hooks=[(name, keep) for name in names])
    return streams, outputs


@dataclass(frozen=True)
class Agreement:
    """Gradients held against the grid, over all ordered pairs of cells.

    Attributes:
        pairs: of cells.
        joined: those joined by a computational path.
        joined_without: joined ones without a gradient.
        apart_with: others with one.
    """

    pairs: int
    joined: int
    joined_without: int
    apart_with: int

    @property
    def exact(self) -> bool:
        """Whether there is a gradient exactly where a path leads."""
        return not (self.joined_without or self.apart_with)

    def __str__(self) -> str:
        with_one = self.joined - self.joined_without
        return (
            f"Of {self.pairs} pairs of cells {self.joined} are joined by a path: {with_one} of them have a gradient. "
            f"Of the others {self.apart_with} have one."
        )


def agreement(gradients: Float[Tensor, "to_layer to_pos from_layer from_pos"]) -> Agreement:
    """Count where gradients (of ``cell_gradients``) and the grid's reachability agree."""
    n_cells, n_positions = gradients.shape[:2]
    grid = Grid(n_positions, n_cells - 1)
    cells = list(grid.cells())
    reached = torch.zeros(gradients.shape, dtype=torch.bool)
    for start in cells:
        for end in cells:
            reached[end.layer, end.position, start.layer, start.position] = grid.reaches(start, end)
    there = gradients > 0
    return Agreement(
        pairs=reached.numel(),
        joined=int(reached.sum()),
        joined_without=int((reached & ~there).sum()),
        apart_with=int((there & ~reached).sum()),
    )

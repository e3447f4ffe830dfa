"""Gradients between the cells of a transformer's grid, that is between residual streams at positions and layers.

If the grid has no path from one cell to another (``grid.py``), the gradient is exactly zero.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.model.transformer import Transformer
from circuits.task import Examples, Task
from retrieval_interp.theory.grid import Grid


def cell_gradients(
    model: Transformer,
    inputs: Tensor,
    *,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Float[Tensor, "to_layer to_pos from_layer from_pos"]:
    """Return the norm of the gradient of every cell with respect to every cell.

    The gradient is that of the component of the end cell in a random direction. Layer 0 is before the first layer, and
    layer l is after l layers. Every cell takes one backward pass.

    Args:
        model: any HookedTransformer without padding.
        inputs: a batch of the model's inputs, ``[batch, pos, ...]``; norms are averaged over the batch.
        seed: the seed of the directions, which have length one.
        progress: is called with the finished share, 0 to 1.
    """
    with torch.enable_grad():
        streams, _ = _streams(model, inputs)
    generator = torch.Generator().manual_seed(seed)
    n_cells, n_positions = len(streams), streams[0].shape[1]
    found = torch.zeros(n_cells, n_positions, n_cells, n_positions, dtype=streams[0].dtype)
    for layer, end in enumerate(streams):
        for position in range(n_positions):
            direction = torch.randn(len(end), end.shape[-1], generator=generator).to(end)
            component = (end[:, position] * direction / direction.norm(dim=-1, keepdim=True)).sum()
            grads = torch.autograd.grad(component, streams[: layer + 1], retain_graph=True, allow_unused=True)
            for below, grad in enumerate(grads):
                if grad is not None:
                    found[layer, position, below] = grad.norm(dim=-1).mean(dim=0).cpu()
            progress((layer * n_positions + position + 1) / (n_cells * n_positions))
    return found


def loss_gradients(model: Transformer, task: Task, examples: Examples) -> Float[Tensor, "layer pos"]:
    """Return the norm of the gradient of a task's loss with respect to every cell.

    At a position before the outputs that the loss reads, it shows how much a cell is trained for later outputs. Layer 0
    is before the first layer.

    Args:
        model: any HookedTransformer without padding.
        task: the model's task.
        examples: examples of the task; norms are averaged over them.
    """
    with torch.enable_grad():
        streams, outputs = _streams(model, examples.inputs)
        total = task.losses(outputs, examples).mean(dim=1).sum()
        grads = torch.autograd.grad(total, streams)
    return torch.stack([grad.norm(dim=-1).mean(dim=0).cpu() for grad in grads])


def _streams(model: Transformer, inputs: Tensor) -> tuple[list[Tensor], Tensor]:
    """Return the residual streams before the first layer and after each layer, and the outputs, all with gradients."""
    streams: list[Tensor] = []
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]

    def keep(stream: Tensor, hook: object) -> Tensor:
        streams.append(stream if stream.requires_grad else stream.detach().requires_grad_())
        return streams[-1]

    outputs = model.run_with_hooks(inputs, fwd_hooks=[(name, keep) for name in names])
    return streams, outputs


@dataclass(frozen=True)
class Agreement:
    """The comparison of gradients with the paths of the grid, over all ordered pairs of cells.

    Attributes:
        pairs: the number of pairs of cells.
        joined: the number of pairs that are joined by a computational path.
        joined_without: the number of joined pairs with a gradient of zero.
        apart_with: the number of other pairs with a nonzero gradient.
    """

    pairs: int
    joined: int
    joined_without: int
    apart_with: int

    @property
    def exact(self) -> bool:
        """Whether the gradient is nonzero for exactly the pairs that a path joins."""
        return not (self.joined_without or self.apart_with)

    def __str__(self) -> str:
        with_one = self.joined - self.joined_without
        return (
            f"Of {self.pairs} pairs of cells, {self.joined} are joined by a path; {with_one} of these have a nonzero "
            f"gradient. Of the other pairs, {self.apart_with} have a nonzero gradient."
        )


def agreement(gradients: Float[Tensor, "to_layer to_pos from_layer from_pos"]) -> Agreement:
    """Compare the gradients from ``cell_gradients`` with the paths of the grid."""
    n_cells, n_positions = gradients.shape[:2]
    grid = Grid(n_positions, n_cells - 1)
    cells = list(grid.cells())
    reached = torch.zeros(gradients.shape, dtype=torch.bool)
    for start in cells:
        for end in cells:
            reached[end.layer, end.position, start.layer, start.position] = grid.reaches(start, end)
    nonzero = gradients > 0
    return Agreement(
        pairs=reached.numel(),
        joined=int(reached.sum()),
        joined_without=int((reached & ~nonzero).sum()),
        apart_with=int((nonzero & ~reached).sum()),
    )

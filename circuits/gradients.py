"""How much each cell of a transformer's grid moves each other cell: gradients between residual streams.

Where the grid says that no path leads (``grid.py``) the gradient is zero, exactly.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer


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
    streams: list[Tensor] = []
    names = ["blocks.0.hook_resid_pre", *(f"blocks.{layer}.hook_resid_post" for layer in range(model.cfg.n_layers))]

    def keep(stream: Tensor, hook: object) -> Tensor:
        streams.append(stream if stream.requires_grad else stream.detach().requires_grad_())
        return streams[-1]

    with torch.enable_grad():
        model.run_with_hooks(inputs, fwd_hooks=[(name, keep) for name in names])
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

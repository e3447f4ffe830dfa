"""The high-level model of the retrieval problem: x0 -> x1 -> ... -> xD, for interchange interventions."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float, Num

from circuits.task import Variable
from circuits.utils.lazy import torch


def chain_variables(n_steps: int, components: Sequence[str]) -> tuple[Variable, ...]:
    """Return the variables x1 ... xD. Symbol xk is set by the second member of pair k.

    Args:
        n_steps: D.
        components: the symbols asked for; those from xk on depend on xk.
    """
    step = {name: int(name.removeprefix("x")) for name in components}
    return tuple(
        Variable(f"x{k}", f"pair{k}.second", tuple(name for name in components if step[name] >= k))
        for k in range(1, n_steps + 1)
    )


def squared_distances(
    answers: Float[torch.Tensor, "batch chain component dim"], wanted: Num[torch.Tensor, "batch chain component dim"]
) -> Float[torch.Tensor, "batch chain component candidate"]:
    """Return the squared distance of every answer from the right answers of all chains to the same component."""
    each = answers[:, :, None] - wanted[:, None]  # [batch, chain, candidate, component, dim]
    return each.square().sum(dim=-1).transpose(2, 3)

"""A cache for the losses of circuits, example by example."""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit


class LossCache:
    """The losses of circuits of one model on one sample, from its first example on."""

    def __init__(self) -> None:
        self._losses: dict[str, list[Tensor]] = {}  # by the circuit's digest

    def n(self, circuit: Circuit) -> int:
        """Return the number of examples that a circuit was measured on."""
        return sum(map(len, self._losses.get(circuit.digest, ())))

    def losses(self, circuit: Circuit) -> Float[Tensor, "example component"]:
        """Return the losses of a circuit on every example that it was measured on."""
        own = self._losses[circuit.digest]
        if len(own) > 1:
            own[:] = [torch.cat(own)]
        return own[0]

    def add(self, circuit: Circuit, first: int, losses: Float[Tensor, "example component"]) -> None:
        """Add the losses of a circuit on the examples from ``first`` on; losses in the cache are not overwritten."""
        known = self.n(circuit)
        if first <= known < first + len(losses):
            self._losses.setdefault(circuit.digest, []).append(losses[known - first :].cpu())

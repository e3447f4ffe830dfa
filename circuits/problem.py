"""What a model is asked to do: examples with named positions, and a loss in named components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int

from circuits.roles import Roles
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Examples:
    """A batch of examples.

    Attributes:
        inputs: what the model reads, ``[batch, pos]`` tokens or ``[batch, pos, d_input]`` vectors.
        targets: what it should answer, ``[batch, ...]``, in whatever form the problem's loss wants.
        roles: the named positions of every example.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    roles: Roles

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, index: slice | Int[torch.Tensor, " n"]) -> Examples:
        """Some of the examples."""
        return Examples(self.inputs[index], self.targets[index], self.roles.take(index))

    def to(self, device: torch.device | str) -> Examples:
        """The same examples on another device."""
        return Examples(self.inputs.to(device), self.targets.to(device), self.roles.to(device))


@runtime_checkable
class Problem(Protocol):
    """All that this package needs to know of a task.

    ``RetrievalTask`` is one; any HookedTransformer with a loss and named positions can have another. On a CPU with
    several cores ``losses`` is called by several threads at once.
    """

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the roles that every example has."""

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The names of the loss components; the loss is their mean."""

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The roles at which the losses read the outputs; what happens elsewhere matters only through these."""

    def examples(self, n: int, seed: int) -> Examples:
        """``n`` fresh examples, the same ones for the same seed."""

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """The loss components of every example, from the model's outputs."""

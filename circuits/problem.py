"""The task of a model: examples with named positions, and a loss with named components."""

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
        inputs: the model's inputs, ``[batch, pos]`` tokens or ``[batch, pos, d_input]`` vectors.
        targets: the right answers, ``[batch, ...]``, in the form that the problem's loss reads.
        roles: the named positions of every example.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    roles: Roles

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, index: slice | Int[torch.Tensor, " n"]) -> Examples:
        """Return some of the examples."""
        return Examples(self.inputs[index], self.targets[index], self.roles.take(index))

    def to(self, device: torch.device | str) -> Examples:
        """Return the same examples on another device."""
        return Examples(self.inputs.to(device), self.targets.to(device), self.roles.to(device))


@runtime_checkable
class Problem(Protocol):
    """Everything that this package needs to know about a task.

    Any class with these members is a problem, such as ``RetrievalTask``. On a CPU with several cores, several threads
    call ``losses`` at once.
    """

    @property
    def roles(self) -> tuple[str, ...]:
        """The names of the roles that every example has."""

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The names of the loss components; the loss is their mean."""

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The roles at which the losses read the outputs; outputs at all other positions are ignored."""

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` fresh examples; the same seed gives the same examples."""

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the loss components of every example, from the model's outputs."""

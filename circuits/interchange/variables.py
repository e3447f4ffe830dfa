"""Variables: the high-level model of a task, whose variables are exchanged between the instances of an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float, Int, Shaped

from circuits.roles import Roles
from circuits.task import Examples, Task
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Variable:
    """A variable of the high-level model, such as the symbol x2 of a retrieval chain.

    Attributes:
        name: its name; in the task's layout, if there is one, a piece of the same name.
        role: the role at which the input sets it. If two instances exchange their inputs there, they exchange the
            variable, and with it all that the high-level model computes from it.
        components: the loss components that depend on it.
    """

    name: str
    role: str
    components: tuple[str, ...]


@runtime_checkable
class Interchangeable(Task, Protocol):
    """A task with a high-level model: variables, and answers that can be held against those of other instances."""

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables, in the order in which the high-level model computes them."""

    def exchanged(
        self, examples: Examples, role: str, partner: Int[torch.Tensor, "batch instance"]
    ) -> Shaped[torch.Tensor, "batch pos ..."]:
        """Return the inputs with the symbol of every instance at a role replaced with its partner's; all else stays."""

    def distances(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch instance component candidate"]:
        """Return how far every answer is from the right answers of all instances of its example, the candidates.

        It is NaN for instances that are not asked for an answer.
        """


def exchange(
    inputs: Shaped[torch.Tensor, "batch pos ..."],
    at: Int[torch.Tensor, "batch instance"],
    partner: Int[torch.Tensor, "batch instance"],
) -> Shaped[torch.Tensor, "batch pos ..."]:
    """Return a copy of inputs with those at the positions ``at`` replaced with those at the partners' positions."""
    rows, changed = torch.arange(len(inputs), device=inputs.device)[:, None], inputs.clone()
    changed[rows, at] = inputs[rows, at.gather(1, partner)]
    return changed


def couples(
    roles: Roles, seed: int
) -> tuple[Int[torch.Tensor, "batch instance"], Bool[torch.Tensor, "batch instance"]]:
    """Pair up the instances of every example at random.

    Args:
        roles: the roles of the examples.
        seed: the seed of the choice.

    Returns:
        every instance's partner, which is itself for an odd one out; and whether it belongs to the first couple.
    """
    n, n_instances = len(roles), roles.positions.shape[2]
    order = torch.rand(n, n_instances, generator=torch.Generator().manual_seed(seed)).argsort(dim=1)
    place = order.argsort(dim=1)  # of every instance in the order
    beside = place ^ 1  # 0 and 1, 2 and 3, and so on
    partner = order.gather(1, torch.where(beside < n_instances, beside, place))
    return partner.to(roles.positions.device), (place < 2).to(roles.positions.device)

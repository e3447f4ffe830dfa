"""High-level models for interchange interventions: variables, and that of the retrieval problem, x0 -> ... -> xD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int, Num, Shaped

from circuits.task import Examples, Task
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Variable:
    """A variable of the high-level model of a task, such as the symbol x2 of a retrieval chain.

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
    """A task with a high-level model, for interchange interventions: variables, and answers to compare."""

    @property
    def variables(self) -> Sequence[Variable]:
        """The variables, in the order in which the high-level model computes them."""

    def exchanged(
        self, examples: Examples, role: str, partner: Int[torch.Tensor, "batch instance"]
    ) -> Shaped[torch.Tensor, "batch pos ..."]:
        """Return the inputs with the symbol of every instance at a role replaced with its partner's; all else stays.

        If the symbol is all of the input there, this is ``exchange(examples.inputs, examples.roles[role], partner)``.
        """

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

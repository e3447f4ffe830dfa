"""The task of a model: examples with named positions, and a loss with named components."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int

from circuits.errors import BadInput
from circuits.roles import Roles, as_tensor
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Examples:
    """A batch of examples; arrays become tensors.

    Attributes:
        inputs: the model's inputs, ``[batch, pos]`` tokens or ``[batch, pos, d_input]`` vectors.
        targets: the right answers, ``[batch, ...]``, in the form that the task's loss reads.
        roles: the named positions of every example.
        counterfactual: for every example, the inputs of another one with the same roles, from which the answer is
            missing; in the shape of ``inputs``. Only resample ablation reads them.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    roles: Roles
    counterfactual: torch.Tensor | None = None

    def __post_init__(self) -> None:
        for name in ("inputs", "targets", "counterfactual"):
            own = getattr(self, name)
            if own is not None or name != "counterfactual":
                object.__setattr__(self, name, as_tensor(f"{name} of examples", own))
                if not getattr(self, name).ndim:
                    raise BadInput(f"{name} of examples: got a single number; expected [batch, ...]")
        if not isinstance(self.roles, Roles):
            raise BadInput(f"roles of examples: got {type(self.roles).__name__}; expected Roles (Roles.of)")
        if len(self.roles) != len(self):
            raise BadInput(f"the roles belong to {len(self.roles)} examples; the inputs are {len(self)}")
        if len(self.targets) != len(self):
            raise BadInput(f"there are {len(self.targets)} targets; the inputs are {len(self)}")
        if self.roles.valid is not None and self.roles.valid.shape[1] != self.inputs.shape[1]:
            raise BadInput(f"valid has {self.roles.valid.shape[1]} positions; the inputs have {self.inputs.shape[1]}")
        low, high = (int(own) for own in self.roles.positions.aminmax())
        if low < 0 or high >= self.inputs.shape[1]:
            raise BadInput(
                f"a role is at position {low if low < 0 else high}; the inputs have {self.inputs.shape[1]} positions"
            )
        if self.counterfactual is not None and self.counterfactual.shape != self.inputs.shape:
            shapes = f"{[*self.counterfactual.shape]}; the inputs have {[*self.inputs.shape]}"
            raise BadInput(f"the counterfactual inputs have the shape {shapes}")

    def __len__(self) -> int:
        return self.inputs.shape[0]

    def take(self, index: slice | Int[torch.Tensor, " n"]) -> Examples:
        """Return some of the examples."""
        other = None if self.counterfactual is None else self.counterfactual[index]
        return Examples(self.inputs[index], self.targets[index], self.roles.take(index), other)

    def to(self, device: torch.device | str) -> Examples:
        """Return the same examples on another device."""
        other = None if self.counterfactual is None else self.counterfactual.to(device)
        return Examples(self.inputs.to(device), self.targets.to(device), self.roles.to(device), other)

    def counterfactuals(self) -> Examples:
        """Return the counterfactual examples, with the same targets and roles.

        Raises:
            BadInput: there are none.
        """
        if self.counterfactual is None:
            raise BadInput("the examples have no counterfactual inputs; resample ablation takes the patterns from them")
        return replace(self, inputs=self.counterfactual, counterfactual=None)


@runtime_checkable
class Task(Protocol):
    """Everything that this package needs to know about a task.

    Any class with these members is a task, such as ``RetrievalTask``.
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


def check_task(task: object, kind: type = Task) -> None:
    """Check that something is a task, of a kind that may ask for more than ``Task``.

    Raises:
        BadInput: it is a class, or lacks something of the kind; or the names of its components or roles are no list.
    """
    if isinstance(task, type):
        raise BadInput(f"the task is the class {task.__name__}; expected an instance: {task.__name__}(...)")
    names = ("roles", "loss_components", "output_roles")
    protocols = [own for own in (*kind.__mro__, Task) if getattr(own, "_is_protocol", False)]
    members = dict.fromkeys([*names, *(name for own in protocols for name in vars(own) if not name.startswith("_"))])
    lacking = [name for name in members if not hasattr(task, name)]
    if lacking:
        said = f"the task, of type {type(task).__name__}, has no {', '.join(lacking)}"
        raise BadInput(f"{said}; expected a task that is {kind.__name__}")
    for name in names:
        own = getattr(task, name)
        if isinstance(own, str) or not len(own) or not all(isinstance(one, str) for one in own):
            raise BadInput(f"{name} of the task is {own!r:.60}; expected names, such as ('answer',)")

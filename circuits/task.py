"""What a user implements: a task. Any class with the members of ``Task`` is one:

    class LastTokenAgain:
        roles, loss_components, output_roles = ("start", "end"), ("answer",), ("end",)

        def examples(self, n, seed):
            tokens = torch.randint(10, (n, 4), generator=torch.Generator().manual_seed(seed))
            start, end = (torch.full((n,), position) for position in (0, 3))
            return Examples(tokens, targets=tokens[:, 0], roles=Roles.of({"start": start, "end": end}))

        def losses(self, outputs, examples):
            return torch.nn.functional.cross_entropy(outputs[:, -1], examples.targets, reduction="none")[:, None]

A task may have more, each of which unlocks a function:

    layout, read_at                       LaidOut            flow_check
    instance_losses                       WithInstances      losses split by label: self_consistency, discover;
                                                             *agrees* counts the instances that the model fails
    differences                           Comparable         validate compares outputs instead of losses
    measures, measured                    Measured           more numbers beside every loss
    unit, texts, said                     Told               words for step_by_step
    two_sided                             (True)             a loss clearly below the model's own is not low either
    is_distance                           (True)             the loss is the distance from the model, for *agrees*
    saw_unablated(opened, residual)       (a method)         gets the last residual stream of every unablated run
    data                                  OnData             a fixed data set, which discover and validate split
    counterfactual inputs of Examples                        resample ablation, instead of other examples
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, runtime_checkable

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
            if (given := getattr(self, name)) is not None or name != "counterfactual":
                object.__setattr__(self, name, as_tensor(f"{name} of examples", given))
                shape, wanted = [*getattr(self, name).shape], ["batch"] if name == "targets" else ["batch", "pos"]
                if len(shape) < len(wanted):
                    raise BadInput(f"{name} of examples: got the shape {shape}; expected [{', '.join(wanted)}, ...]")
        if not isinstance(self.roles, Roles):
            raise BadInput(f"roles of examples: got {type(self.roles).__name__}; expected Roles (Roles.of)")
        if len(self.roles) != len(self):
            raise BadInput(f"the roles belong to {len(self.roles)} examples; the inputs are {len(self)}")
        if len(self.targets) != len(self):
            raise BadInput(f"there are {len(self.targets)} targets; the inputs are {len(self)}")
        if self.roles.valid is not None and self.roles.valid.shape[1] != self.inputs.shape[1]:
            raise BadInput(f"valid has {self.roles.valid.shape[1]} positions; the inputs have {self.inputs.shape[1]}")
        low, high = map(int, self.roles.positions.aminmax())
        if low < 0 or high >= self.inputs.shape[1]:
            at = low if low < 0 else high
            raise BadInput(f"a role is at position {at}; the inputs have {self.inputs.shape[1]} positions")
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
        """Return the counterfactual examples, with the same targets and roles; BadInput if there are none."""
        if self.counterfactual is None:
            raise BadInput("the examples have no counterfactual inputs; resample ablation takes the outputs from them")
        return replace(self, inputs=self.counterfactual, counterfactual=None)


class HasAll(type(Protocol)):  # type: ignore[misc]
    """A Protocol that sees what ``__getattr__`` gives, as a module its parts; since 3.12 Python's own does not."""

    def __instancecheck__(cls, instance: Any) -> bool:
        names = vars(cls).get("__protocol_attrs__")  # classes that inherit from a Protocol have none of their own
        return super().__instancecheck__(instance) if names is None else all(hasattr(instance, n) for n in names)


@runtime_checkable
class Task(Protocol, metaclass=HasAll):
    """Everything that this package needs to know about a task."""

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


@runtime_checkable
class WithInstances(Task, Protocol):
    """A task whose losses are the means of those of the instances of an example. Losses can then be split by label."""

    def instance_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch instance component"]:
        """Return the loss components of every instance; NaN for instances that are not asked for an answer."""


@runtime_checkable
class OnData(Task, Protocol):
    """A task with a fixed data set: discover and validate take different examples of it (circuits/split.py)."""

    @property
    def data(self) -> Examples:
        """All examples."""


@runtime_checkable
class Comparable(Task, Protocol):
    """A task that says how far apart two answers are, for the statement that a circuit agrees with its model."""

    def differences(
        self,
        outputs: Float[torch.Tensor, "batch pos d_out"],
        others: Float[torch.Tensor, "batch pos d_out"],
        examples: Examples,
    ) -> Float[torch.Tensor, "batch instance component"]:
        """Return what the losses of outputs would be if other outputs were right, for every instance.

        An example is one instance if the task has no instance losses.
        """


@runtime_checkable
class Measured(Task, Protocol):
    """A task that gives more numbers beside its losses, such as a logit difference. They decide no test.

    The search for circuits of models with many heads keeps the average of the first near the model's.
    """

    @property
    def measures(self) -> tuple[str, ...]:
        """Their names. Of the first, more is better: a head without which it is higher works against the task."""

    def measured(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch measure"]:
        """Return the numbers of every example, from the outputs at the output roles."""


Answer = tuple[str, float, bool]  # an answer in words, its number, and whether it is right


@runtime_checkable
class Told(Task, Protocol):
    """A task that says what its examples and answers are, for ``step_by_step``."""

    @property
    def unit(self) -> str:
        """What the number of an answer is, such as ``probability``."""

    def texts(self, examples: Examples) -> list[list[str]]:
        """Return the text of every position of every example."""

    def right(self, examples: Examples) -> list[list[str]]:
        """Return the right answer of every instance of every example."""

    def said(self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples) -> list[list[list[Answer]]]:
        """Return what outputs say, for every example and instance: its answers, or the most likely ones."""


Known = Mapping[str, frozenset[str]]  # the pieces that every role knows


@dataclass(frozen=True)
class Layout:
    """The pieces of information that each role starts with, its token and its place (paper, section 5).

    One chain of the retrieval problem with D = 2:

                         query     pair1.first   pair1.second   pair2.first   pair2.second
    starts with          x0 p0     x0 p1         x1 p1          x1 p2         x2 p2

    Attributes:
        start: for every role, in the order of the sequence, the pieces of information that it starts with.
        places: the pieces that are places; all others are tokens.
        alike: for some roles, the roles that look the same, place by place. If one of these knows all pieces that the
            ends of a path share, attention cannot tell it from the path's target, and the path carries nothing.
    """

    start: Known
    places: frozenset[str] = frozenset()
    alike: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles, in the order of the sequence."""
        return tuple(self.start)

    @property
    def pieces(self) -> tuple[str, ...]:
        """All pieces, in the order of their first role."""
        return tuple(dict.fromkeys(piece for pieces in self.start.values() for piece in sorted(pieces)))

    @property
    def joined(self) -> tuple[tuple[str, str], ...]:
        """The neighbouring roles in the same place, the later one first: the members of pairs."""
        in_order = pairwise(self.roles)
        return tuple((after, role) for role, after in in_order if self.start[role] & self.start[after] & self.places)

    def ends(self, path: Any) -> tuple[tuple[str, str], ...]:
        """Return the roles that a path joins; that of a ``Previous`` head, from ``*``, joins all pairs."""
        source, target = path.source, path.target
        if source == "*":
            return self.joined
        for role in (source, target):
            if role not in self.start:
                raise BadInput(f"{path}: unknown role {role!r}; the roles are {', '.join(self.roles)}")
        if self.roles.index(target) > self.roles.index(source):
            raise BadInput(f"{path} is against the causal mask: {target!r} comes after {source!r}")
        beside = zip(self.alike.get(source, ()), self.alike.get(target, ()), strict=False)
        return ((source, target), *(beside if self.start[source] & self.start[target] & self.places else ()))

    def renamed(self, names: Mapping[str, str]) -> Layout:
        """Return the same layout with other role names."""
        start = {names.get(role, role): pieces for role, pieces in self.start.items()}
        alike = {
            names.get(role, role): tuple(names.get(other, other) for other in others)
            for role, others in self.alike.items()
        }
        return Layout(start, self.places, alike)


@runtime_checkable
class LaidOut(Protocol, metaclass=HasAll):
    """A task with a layout of its roles, for ``flow_check``; its loss components are pieces of information, too."""

    @property
    def layout(self) -> Layout:
        """Every role with its pieces."""

    @property
    def read_at(self) -> Mapping[str, str]:
        """For every loss component, the role at which it is read."""


def check_task(task: Any, kind: type = Task) -> Any:
    """Return the task, if it is one, of a kind that may ask for more than ``Task``.

    Raises:
        BadInput: it is a class, or lacks something of the kind; or the names of its components or roles are no list.
    """
    if isinstance(task, type):
        raise BadInput(f"the task is the class {task.__name__}; expected an instance: {task.__name__}(...)")
    names = ("roles", "loss_components", "output_roles")
    protocols = [base for base in (*kind.__mro__, Task) if getattr(base, "_is_protocol", False)]
    members = dict.fromkeys([*names, *(name for base in protocols for name in vars(base) if not name.startswith("_"))])
    if lacking := [name for name in members if not hasattr(task, name)]:
        said = f"the task, of type {type(task).__name__}, has no {', '.join(lacking)}"
        raise BadInput(f"{said}; expected a {kind.__name__} (circuits/task.py)")
    for name in names:
        given = getattr(task, name)
        if isinstance(given, str) or not len(given) or not all(isinstance(one, str) and one for one in given):
            raise BadInput(f"{name} of the task is {given!r:.60}; expected names, such as ('answer',)")
        if len({*given}) < len(given):
            raise BadInput(f"{name} of the task repeats a name: {', '.join(given)}")
    return task

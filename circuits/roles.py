"""Roles: names for the positions of an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from jaxtyping import Int

from circuits.errors import BadInput
from circuits.utils.lazy import torch


@dataclass(frozen=True)
class Roles:
    """Named token positions of a batch of examples.

    An example may have several instances; every instance has one position for each role.

    Attributes:
        names: the names of the roles, in display order.
        positions: token positions, ``[batch, role, instance]``, counted from 0.
        groups: for every group (such as the slot in a block, or the template of a text), the labels that tell instances
            apart, as numbers from 0, ``[batch, role, instance]``. A path may hold for some labels only
            (``circuits.Condition``).
    """

    names: tuple[str, ...]
    positions: Int[torch.Tensor, "batch role instance"]
    groups: Mapping[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, positions: Mapping[str, torch.Tensor], groups: Mapping[str, Mapping[str, torch.Tensor]] | None = None
    ) -> Roles:
        """Make roles from positions by name, such as ``Roles.of({"source": positions, "target": positions})``.

        Args:
            positions: for every role, its position in each example, ``[batch]``, or in each of several instances,
                ``[batch, instance]``.
            groups: for every group, the labels of every role, in the same shape.

        Raises:
            BadInput: the shapes differ, or have another number of dimensions.
        """

        def stacked(own: Mapping[str, torch.Tensor]) -> torch.Tensor:
            columns = [torch.as_tensor(column) for column in own.values()]
            for name, column in zip(own, columns, strict=True):
                if column.ndim not in (1, 2) or column.shape != columns[0].shape:
                    raise BadInput(
                        f"role {name!r}: shape {[*column.shape]}; expected [batch] or [batch, instance] for all"
                    )
            return torch.stack([column.reshape(len(column), -1) for column in columns], dim=1)

        if not positions:
            raise BadInput("no role is given; expected at least one, with its positions")
        return cls(tuple(positions), stacked(positions), {group: stacked(own) for group, own in (groups or {}).items()})

    def __post_init__(self) -> None:
        for group, labels in self.groups.items():
            if labels.shape != self.positions.shape:
                raise BadInput(f"{group}: {list(labels.shape)} labels for {list(self.positions.shape)} positions")
        if len(self.names) != self.positions.shape[1]:
            raise BadInput(f"{len(self.names)} role names for {self.positions.shape[1]} rows of positions")
        if len(set(self.names)) != len(self.names):
            raise BadInput(f"role names repeat: {', '.join(self.names)}")

    def __getitem__(self, name: str) -> Int[torch.Tensor, "batch instance"]:
        """Return the positions of one role in every example and instance, ``[batch, instance]``."""
        if name not in self.names:
            raise BadInput(f"unknown role {name!r}; the roles are {', '.join(self.names)}")
        return self.positions[:, self.names.index(name)]

    def group(self, group: str, role: str) -> Int[torch.Tensor, "batch instance"]:
        """Return the labels of a group at one role, ``[batch, instance]``; the group ``position`` always exists."""
        positions = self[role]
        if group == "position":
            return positions
        if group not in self.groups:
            raise BadInput(f"unknown group {group!r}; the groups are {', '.join(('position', *self.groups))}")
        return self.groups[group][:, self.names.index(role)]

    @property
    def main_group(self) -> str | None:
        """The first group, which splits attention by default; None if there are no groups."""
        return next(iter(self.groups), None)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        """The number of examples."""
        return self.positions.shape[0]

    def before(self, name: str) -> tuple[str, ...]:
        """Return the roles that come before this one in every example and instance, so that it can attend to them."""
        return tuple(other for other in self.names if bool((self[other] < self[name]).all()))

    @property
    def distinct(self) -> tuple[str, ...]:
        """The roles without those that always share their position with an earlier named role."""
        found: list[str] = []
        for name in self.names:
            if not any(torch.equal(self[name], self[other]) for other in found):
                found.append(name)
        return tuple(found)

    @property
    def in_order(self) -> tuple[str, ...]:
        """The roles in the order of their average positions."""
        place = self.positions.double().mean(dim=(0, 2)).tolist()
        return tuple(sorted(self.names, key=lambda name: place[self.names.index(name)]))

    @property
    def adjacent(self) -> tuple[tuple[str, str], ...]:
        """Every role with the role directly before it, if this is so in every example and instance."""
        return tuple((after, role) for after, role in self.pairs if bool((self[after] == self[role] + 1).all()))

    @property
    def shared(self) -> tuple[str, ...]:
        """The roles that all instances have at the same position, if there are several instances.

        One such role is that of the position where the only answer is read. A path from it needs a condition that
        picks one instance, such as the one that is asked about.
        """
        if self.positions.shape[2] == 1:
            return ()
        return tuple(name for name in self.names if bool((self[name] == self[name][:, :1]).all()))

    def alone(self, shared: str) -> bool:
        """Whether no instance has a role of its own at the position of this shared role."""
        own = [name for name in self.names if name not in self.shared]
        return not any((self[name] == self[shared]).any() for name in own)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The source and target of every path that every instance can have: a role, and a role before it."""
        distinct, shared = self.distinct, self.shared
        sources = [name for name in distinct if name not in shared]
        return tuple((source, target) for source in sources for target in self.before(source) if target in distinct)

    def take(self, examples: slice | Int[torch.Tensor, " n"]) -> Roles:
        """Return the roles of some of the examples."""
        return self._with(lambda tensor: tensor[examples])

    def to(self, device: torch.device | str) -> Roles:
        """Return the same roles on another device."""
        return self._with(lambda tensor: tensor.to(device))

    def _with(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Roles:
        return Roles(self.names, change(self.positions), {name: change(own) for name, own in self.groups.items()})

    def labels(self, example: int, n_positions: int) -> list[str]:
        """Return a label for every position of one example: ``instance:role``, or the position if it has no role.

        Instances are counted from 1. If a position has several roles, the label names all of them, in the order of
        their instances: ``1:next,2:first``. Roles that all instances share come first, without a number.
        """
        here: list[list[str]] = [[] for _ in range(n_positions)]
        shared = self.shared
        for role in shared:
            here[int(self[role][example, 0])].append(role)
        for instance, column in enumerate(self.positions[example].T.tolist(), start=1):
            for role, position in zip(self.names, column, strict=True):
                if role not in shared:
                    here[position].append(f"{instance}:{role}")
        return [",".join(labels) or str(position) for position, labels in enumerate(here)]

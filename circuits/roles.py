"""Roles: names for the positions of an example."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from circuits.errors import BadInput
from circuits.utils.lazy import torch

# What roles and groups are not called, because it means something else in a circuit.
WORDS = ("*", "at", "elsewhere", "first", "identity", "mechanism", "position", "previous", "to", "uniform", "zero")


@dataclass(frozen=True)
class Roles:
    """Named token positions of a batch of examples.

    An example may have several instances; every instance has one position for each role.

    Attributes:
        names: the names of the roles, in display order.
        positions: token positions, ``[batch, role, instance]``, counted from 0.
        groups: for every group (such as the slot in a block, or the template of a text), the labels that tell instances
            apart, as numbers from 0, ``[batch, role, instance]``. A path may hold for some labels only
            (``circuits.mechanisms.Condition``).
        valid: True where there is a token and not padding, ``[batch, pos]``, if the examples have different lengths;
            the tokens of an example are side by side, and the padding may be on either side. None without padding.
        layout: the layout of every example, as a number from 0, ``[batch]``: examples of one layout, such as prompts of
            one wording, have the same meaning at every position, and the same length. Averages are taken within a
            layout. None if all examples are of one.
        causal: whether a position can attend to itself and earlier ones only; False for a model that attends both ways.
        windows: for every layer, how many positions a position sees, from itself backwards; None if it sees all that
            the causal mask allows. Empty if no layer has such a window. The engine takes them from the model.
        window: the window of the one layer that these roles are for.
    """

    names: tuple[str, ...]
    positions: Int[torch.Tensor, "batch role instance"]
    groups: Mapping[str, torch.Tensor] = field(default_factory=dict)
    valid: Bool[torch.Tensor, "batch pos"] | None = None
    layout: torch.Tensor | None = None
    causal: bool = True
    windows: tuple[int | None, ...] = ()
    window: int | None = None

    @classmethod
    def of(
        cls,
        positions: Mapping[str, torch.Tensor],
        groups: Mapping[str, Mapping[str, torch.Tensor]] | None = None,
        valid: torch.Tensor | None = None,
        causal: bool = True,
        layout: torch.Tensor | None = None,
    ) -> Roles:
        """Make roles from positions by name, such as ``Roles.of({"source": positions, "target": positions})``.

        Args:
            positions: for every role, its position in each example, ``[batch]``, or in each of several instances,
                ``[batch, instance]``.
            groups: for every group, the labels of every role, by name in any order, in the same shape.
            valid: True where there is a token and not padding, ``[batch, pos]``; such as a tokenizer's attention mask.
            causal: False for a model that attends in both directions.
            layout: the layout of every example, as a number from 0, ``[batch]``.

        Raises:
            BadInput: a name cannot be used (``check_name``), a group lacks a role or has another one, the numbers
                are not whole, the shapes differ or have another number of dimensions, a role is at padding, or
                examples of one layout have different lengths.
        """

        def stacked(what: str, given: Mapping[str, torch.Tensor]) -> torch.Tensor:
            if not isinstance(given, Mapping) or {*given} != {*positions}:
                raise BadInput(f"{what} has the roles {', '.join(map(str, given))}; expected {', '.join(positions)}")
            columns = [as_tensor(f"role {name!r}", given[name]) for name in positions]
            for name, column in zip(positions, columns, strict=True):
                if column.ndim not in (1, 2) or column.shape != columns[0].shape:
                    expected = "expected [batch] or [batch, instance] for all"
                    raise BadInput(f"role {name!r}: shape {[*column.shape]}; {expected}")
                if column.is_floating_point() or column.is_complex() or column.dtype == torch.bool:
                    raise BadInput(f"role {name!r}: {what} has {column.dtype}; expected whole numbers")
            return torch.stack([(column if column.ndim == 2 else column[:, None]).long() for column in columns], dim=1)

        if not isinstance(positions, Mapping) or not positions or not isinstance(groups or {}, Mapping):
            raise BadInput("no role is given; expected at least one, with its positions")
        at = stacked("a position", positions)
        labels = {group: stacked(f"group {group!r}", of_role) for group, of_role in (groups or {}).items()}
        if any((numbers < 0).any() for numbers in labels.values()):
            raise BadInput("a label of a group is negative; expected numbers from 0")
        tokens = None if valid is None else as_tensor("valid", valid).bool()
        if tokens is not None and (tokens.ndim != 2 or len(tokens) != len(at)):
            raise BadInput(f"valid has the shape {[*tokens.shape]}; expected [batch, positions]")
        kinds = None if layout is None else as_tensor("layout", layout)
        return cls(tuple(positions), at, labels, tokens, kinds, causal)

    def __post_init__(self) -> None:
        for what, at in {"positions": self.positions, **self.groups}.items():
            if not isinstance(at, torch.Tensor) or at.ndim != 3 or at.is_floating_point() or at.dtype == torch.bool:
                raise BadInput(f"{what} of roles are no whole numbers [batch, role, instance]; expected Roles.of(...)")
        for name in self.names:
            check_name("role", name)
        for group, labels in self.groups.items():
            check_name("group", group)
            if labels.shape != self.positions.shape:
                raise BadInput(f"{group}: {list(labels.shape)} labels for {list(self.positions.shape)} positions")
        if len(self.names) != self.positions.shape[1]:
            raise BadInput(f"{len(self.names)} role names for {self.positions.shape[1]} rows of positions")
        if len(set(self.names)) != len(self.names):
            raise BadInput(f"role names repeat: {', '.join(self.names)}")
        if not len(self):
            raise BadInput("0 examples; expected at least 1")
        if self.layout is not None:
            whole = not self.layout.is_floating_point() and self.layout.dtype != torch.bool
            if self.layout.shape != self.positions.shape[:1] or not whole or self.layout.min() < 0:
                raise BadInput("the layouts of examples are no whole numbers from 0, [batch]; expected one for each")
            for kind, there in self._of_layout(self.tokens(1).sum(dim=1)):
                if (there != there[0]).any():
                    raise BadInput(f"the examples of layout {kind} have different lengths; expected one length")
        if self.valid is not None:
            if (self.valid[:, 1:] != self.valid[:, :-1]).sum(dim=1).amax() > 1 or not self.valid.any(dim=1).all():
                raise BadInput("padding on both sides of an example, or within it; expected tokens on one side")
            if int(self.positions.max()) >= (n := self.valid.shape[1]):
                raise BadInput(f"a role is at position {int(self.positions.max())}; valid has {n} positions")
            for name in self.names:
                if not self.valid.gather(1, self[name]).all():
                    raise BadInput(f"role {name!r} is at a position that is padding")

    def __getitem__(self, name: str) -> Int[torch.Tensor, "batch instance"]:
        """Return the positions of one role in every example and instance, ``[batch, instance]``."""
        if name not in self.names:
            raise BadInput(f"unknown role {name!r}; the roles are {', '.join(self.names)}")
        return self.positions[:, self.names.index(name)]

    def _of_layout(self, values: Shaped[torch.Tensor, " batch"]) -> Iterator[tuple[int, torch.Tensor]]:
        assert self.layout is not None
        return ((int(kind), values[self.layout == kind]) for kind in self.layout.unique())

    def layouts(self, what: str) -> Int[torch.Tensor, " batch"]:
        """Return the layout of every example; ``what`` says which averages are taken within it, for the message;
        BadInput if the examples have different lengths and no layout.
        """
        if self.layout is not None:
            return self.layout
        long = self.tokens(1).sum(dim=1)
        if (long != long[0]).any():
            raise BadInput(
                f"{what}: the examples have different lengths and no layout; expected Roles.of(..., layout=...)"
            )
        return torch.zeros_like(long)

    @property
    def first(self) -> Int[torch.Tensor, " batch"]:
        """The position of the first token of every example: 0, unless there is padding before it."""
        return self.tokens(1).long().argmax(dim=1)

    def tokens(self, n_positions: int) -> Bool[torch.Tensor, "batch pos"]:
        """Return where there is a token and not padding."""
        if self.valid is None:
            return torch.ones(len(self), n_positions, dtype=torch.bool, device=self.positions.device)
        return self.valid

    def within(self, pattern: Float[torch.Tensor, "#batch query key"]) -> Float[torch.Tensor, "#batch query key"]:
        """Return attention patterns without attention to padding; each row of a token keeps its sum.

        A token that has attended to padding only attends to itself instead, as a first token does.
        """
        if self.valid is None:
            return pattern
        kept = pattern * self.valid[:, None, :] * self.valid[:, :, None]
        was, left = pattern.sum(dim=-1, keepdim=True), kept.sum(dim=-1, keepdim=True)
        alone = torch.diag_embed((self.valid & (left == 0)[..., 0]).to(pattern.dtype)) * was
        return torch.where(left == 0, alone, kept * (was / left.clamp(min=torch.finfo(pattern.dtype).tiny)))

    def aligned(self, values: Shaped[torch.Tensor, "batch ..."], *dims: int) -> Shaped[torch.Tensor, "batch ..."]:
        """Return values for each position, counted from the first token along some dimensions; 0 at padding.

        The first of these dimensions is that of the position itself, such as the query of an attention pattern.
        """
        if self.valid is None:
            return values
        shape = [len(self), *[1] * (values.ndim - 1)]
        shape[dims[0]] = -1
        return _moved(values * self.valid.reshape(shape), self.first, dims)

    def from_first_token(
        self, values: Shaped[torch.Tensor, "one ..."], *dims: int
    ) -> Shaped[torch.Tensor, "#batch ..."]:
        """Return values that count from the first token as those for every example, which count its padding."""
        if self.valid is None:
            return values
        return _moved(values.expand(len(self), *values.shape[1:]), -self.first, dims)

    def group(self, group: str, role: str) -> Int[torch.Tensor, "batch instance"]:
        """Return the labels of a group at one role, ``[batch, instance]``.

        The group ``position`` always exists, counted from the first token.
        """
        positions = self[role]
        if group == "position":
            return positions - self.first[:, None]
        if group not in self.groups:
            raise BadInput(f"unknown group {group!r}; the groups are {', '.join(('position', *self.groups))}")
        return self.groups[group][:, self.names.index(role)]

    @property
    def main_group(self) -> str | None:
        """The first group, which splits attention by default; None if there are no groups."""
        return next(iter(self.groups), None)

    def in_layer(self, layer: int) -> Roles:
        """Return the roles with the window of one layer."""
        return replace(self, window=self.windows[layer]) if self.windows else self

    def sees(
        self, query: Int[torch.Tensor, "*#place"], key: Int[torch.Tensor, "*#place"]
    ) -> Bool[torch.Tensor, "*#place"]:
        """Return whether positions may attend to others: not to later ones, and to none out of the window."""
        seen = (key <= query) | (not self.causal)
        return seen if self.window is None else seen & (query - key < self.window)

    def mask(self, n_positions: int) -> Bool[torch.Tensor, "query key"]:
        """Return for every two positions whether the first may attend to the second."""
        at = torch.arange(n_positions, device=self.positions.device)
        return self.sees(at[:, None], at)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return self.positions.shape[0]

    def before(self, name: str) -> tuple[str, ...]:
        """Return the roles that come before this one in every example and instance, so that it can attend to them.

        Without a causal mask, it can attend to all roles that do not always share its position.
        """
        at, others = self[name], {other: self[other] for other in self.names}
        if self.causal:
            return tuple(other for other, to in others.items() if bool(((to < at) & self.sees(at, to)).all()))
        return tuple(other for other, to in others.items() if bool((to != at).any()))

    @property
    def distinct(self) -> tuple[str, ...]:
        """The roles without those that always share their position with an earlier named role."""
        same = {name: [torch.equal(self[name], self[other]) for other in self.names] for name in self.names}
        return tuple(name for place, name in enumerate(self.names) if not any(same[name][:place]))

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
        return not any((self[name] == self[shared]).any() for name in {*self.names} - {*self.shared})

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
        labels = {name: change(numbers) for name, numbers in self.groups.items()}
        valid, layout = (None if one is None else change(one) for one in (self.valid, self.layout))
        return replace(self, positions=change(self.positions), groups=labels, valid=valid, layout=layout)

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


def check_name(what: str, name: object) -> None:
    """Check the name of a role or a group; ``what`` says which of them, for the message; BadInput if it is a word of
    the circuit language (``WORDS``), begins with ``position``, or is not printable text.
    """
    if not isinstance(name, str) or not name.isprintable() or name != name.strip() or not name:
        raise BadInput(f"a {what} is called {name!r:.60}; expected printable text")
    if name in WORDS or name.startswith("position "):
        raise BadInput(f"a {what} is called {name!r}, which means something else in a circuit; expected another name")


def as_tensor(what: str, given: object) -> torch.Tensor:
    """Return a tensor or an array as a tensor; whole numbers become 64-bit integers.

    Raises:
        BadInput: it is neither, or its numbers have a type that PyTorch does not have.
    """
    try:
        if not hasattr(given, "shape"):
            raise TypeError(f"got {type(given).__name__}")
        made = given if isinstance(given, torch.Tensor) else torch.as_tensor(np.ascontiguousarray(given))
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{what}: {error}; expected a tensor or an array of numbers") from None
    return made if made.is_floating_point() or made.is_complex() or made.dtype == torch.bool else made.long()


def _moved(
    values: Shaped[torch.Tensor, "batch ..."], by: Int[torch.Tensor, " batch"], dims: tuple[int, ...]
) -> Shaped[torch.Tensor, "batch ..."]:
    """Return values whose entry p along some dimensions is that at p + ``by`` of the same example; 0 beyond the end."""
    for dim in dims:
        n, shape = values.shape[dim], [len(by), *[1] * (values.ndim - 1)]
        shape[dim] = -1
        at = (torch.arange(n, device=values.device) + by[:, None]).reshape(shape)
        values = values.take_along_dim(at.clamp(0, n - 1), dim) * ((at >= 0) & (at < n))
    return values

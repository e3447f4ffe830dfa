"""Branches: layer by layer, circuits that agree so far share one computation."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from circuits.circuit import Circuit
from circuits.heads import UNNAMED, Layer


@dataclass(frozen=True)
class Branch:
    """Circuits that agree up to a layer.

    Attributes:
        members: the indices of the circuits.
        parent: the index of the branch in the layer below that they come from.
        heads: the replaced heads of this layer.
    """

    members: tuple[int, ...]
    parent: int
    heads: Layer


@dataclass(frozen=True)
class Fork:
    """All branches of one layer. The first branch, the *trunk*, has the first circuit."""

    branches: tuple[Branch, ...]

    @cached_property
    def by_heads(self) -> dict[Layer, list[int]]:
        """The branches by their replaced heads in this layer."""
        found: dict[Layer, list[int]] = {}
        for index, branch in enumerate(self.branches):
            found.setdefault(branch.heads, []).append(index)
        return found

    @cached_property
    def prescribed(self) -> list[int]:
        """For every branch, the index of its replaced heads in ``by_heads``."""
        places = {heads: place for place, heads in enumerate(self.by_heads)}
        return [places[branch.heads] for branch in self.branches]

    @cached_property
    def parents(self) -> list[int]:
        """For every branch, the branch of the layer below that it comes from."""
        return [branch.parent for branch in self.branches]

    def prescribes(self, n_heads: int) -> bool:
        """Whether every branch replaces all heads of the layer."""
        return all(len(heads) == n_heads for heads in self.by_heads)


def forks(circuits: Sequence[Circuit], n_layers: int) -> list[Fork]:
    """Return the branches of every layer, from the lowest layer up."""
    found = [Fork((Branch(tuple(range(len(circuits))), 0, UNNAMED),))]
    for layer in range(n_layers):
        branches = []
        for parent, branch in enumerate(found[-1].branches):
            agreeing: dict[Layer, list[int]] = {}
            for member in branch.members:
                agreeing.setdefault(circuits[member].layer(layer), []).append(member)
            branches += [Branch(tuple(members), parent, own) for own, members in agreeing.items()]
        found.append(Fork(tuple(branches)))
    return found[1:]

"""Fixed patterns: the same attention pattern in every example, or in every example of a layout."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float

from circuits.errors import BadInput
from circuits.mechanisms.mechanism import FIXED, Mechanism, check_mask, check_weights, in_numpy
from circuits.roles import Roles
from circuits.utils.lazy import torch


@dataclass(frozen=True, eq=False)
class FixedPattern(Mechanism):
    """The same attention pattern in every example of a layout: the head attends by position only.

    Attributes:
        numbers: the attention of each query to each key, ``[query, key]``, as a tensor or an array; each row sums to 1
            or less. With several layouts (``Roles.layout``) one for each, ``[layout, query, key]``.
        name: ``mean`` for a head's average over examples, ``map`` if every query attends to one key, else ``given``.
    """

    numbers: torch.Tensor | np.ndarray = field(repr=False)
    name: str = "given"

    def __post_init__(self) -> None:
        is_array = isinstance(self.numbers, np.ndarray) and np.isrealobj(self.numbers)
        if not is_array and (not hasattr(self.numbers, "is_complex") or self.numbers.is_complex()):
            kind = getattr(self.numbers, "dtype", type(self.numbers).__name__)
            raise BadInput(f"a fixed pattern: got {kind}; expected a tensor or an array of real numbers")
        shape = [*self.numbers.shape]
        if len(shape) not in (2, 3) or shape[-1] != shape[-2] or not all(shape):
            raise BadInput(f"a fixed pattern has the shape {shape}; expected [query, key] of the same length")
        check_weights("a fixed pattern", self.array)
        if self.name not in FIXED:
            raise BadInput(f"a fixed pattern has the kind {self.name!r}; expected {', '.join(FIXED)}")

    def __str__(self) -> str:
        return f"{self.name} {self.digest[:8]}"

    @property
    def specification(self) -> object:
        """The name, and the hash of the numbers."""
        return [self.name, self.digest]

    @cached_property
    def array(self) -> np.ndarray:
        """The numbers as an array in single precision, as they are; numbers from a file do not need PyTorch."""
        return in_numpy(self.numbers)

    @cached_property
    def weights(self) -> torch.Tensor:
        """The numbers as a tensor in single precision, on the CPU."""
        return torch.from_numpy(self.array)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the numbers in single precision."""
        return hashlib.sha256(f"{self.array.shape}".encode() + self.array.tobytes()).hexdigest()

    @property
    def as_map(self) -> FixedPattern:
        """The map in which every query attends only to its strongest key."""
        strongest = torch.nn.functional.one_hot(self.weights.argmax(dim=-1), self.weights.shape[-1])
        return FixedPattern(strongest.float(), "map")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedPattern) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return the pattern, ``[1, query, key]``; with padding or layouts ``[batch, query, key]``.

        Raises:
            BadInput: the examples have another length, or layouts that the pattern does not have; or a query attends to
                a later key or out of its window.
        """
        what, weights = f"a {self.name} pattern", self.weights.to(roles.positions.device)
        if n_positions != weights.shape[-1]:
            raise BadInput(f"{what} of {weights.shape[-1]} positions; the examples have {n_positions}")
        check_mask(what, self.array, roles)
        if weights.ndim == 3:
            check_layouts(what, (kinds := roles.layouts(what)), weights.flatten(1).any(dim=1))
            weights = weights[kinds]
        elif self.name == "mean" and len(kinds := roles.layouts(what).unique()) > 1:
            raise BadInput(f"{what} of one layout; the examples have {len(kinds)}, such as wordings of another length")
        return roles.from_first_token(weights if weights.ndim == 3 else weights[None], -2, -1)


def check_layouts(what: str, layouts: torch.Tensor, known: torch.Tensor) -> None:
    """Check that examples are of layouts over which something was averaged; BadInput if one of them is of another
    layout; the message begins with ``what``.
    """
    for kind in layouts.unique().tolist():
        if kind >= len(known) or not known[kind]:
            raise BadInput(f"{what}: no example of layout {kind} was averaged over; expected some, or more examples")

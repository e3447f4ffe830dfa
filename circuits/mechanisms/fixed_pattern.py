"""Fixed patterns: the same attention pattern in every example."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float

from circuits.errors import BadInput
from circuits.mechanisms.mechanism import FIXED, Mechanism, check_mask, check_weights, in_numpy
from circuits.roles import Roles
from circuits.utils.lazy import torch


@dataclass(frozen=True, eq=False)
class FixedPattern(Mechanism):
    """The same attention pattern in every example: the head attends by position only.

    Attributes:
        numbers: the attention of each query to each key, ``[query, key]``, as a tensor or an array; each row sums to 1
            or less.
        name: ``mean`` for a head's average over examples, ``map`` if every query attends to one key, ``given`` for any
            other pattern.
    """

    numbers: torch.Tensor | np.ndarray
    name: str = "given"

    def __post_init__(self) -> None:
        is_array = isinstance(self.numbers, np.ndarray) and np.isrealobj(self.numbers)
        if not is_array and (not hasattr(self.numbers, "is_complex") or self.numbers.is_complex()):
            kind = getattr(self.numbers, "dtype", type(self.numbers).__name__)
            raise BadInput(f"a fixed pattern: got {kind}; expected a tensor or an array of real numbers")
        shape = [*self.numbers.shape]
        if not shape or shape != 2 * shape[:1] or not shape[0]:
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
        """The numbers as an array in single precision, ``[query, key]``; numbers from a file do not need PyTorch."""
        return in_numpy(self.numbers)

    @cached_property
    def weights(self) -> torch.Tensor:
        """The numbers as a tensor in single precision, ``[query, key]``, on the CPU."""
        return torch.from_numpy(self.array)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the numbers in single precision."""
        return hashlib.sha256(f"{self.array.shape}".encode() + self.array.tobytes()).hexdigest()

    @property
    def as_map(self) -> FixedPattern:
        """The map in which every query attends only to its strongest key."""
        return FixedPattern(torch.nn.functional.one_hot(self.weights.argmax(dim=1), len(self.weights)).float(), "map")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FixedPattern) and (self.name, self.digest) == (other.name, other.digest)

    def __hash__(self) -> int:
        return hash((self.name, self.digest))

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return the pattern, ``[1, query, key]``; with padding ``[batch, query, key]``, from the first token on.

        Raises:
            BadInput: the examples have another length, or a query attends to a later key or out of its window.
        """
        if n_positions != len(self.weights):
            raise BadInput(f"a {self.name} pattern of {len(self.weights)} positions; the examples have {n_positions}")
        check_mask(f"a {self.name} pattern", self.array, roles)
        return roles.from_first_token(self.weights.to(roles.positions.device)[None], -2, -1)

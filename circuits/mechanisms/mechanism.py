"""Mechanisms: what a head is supposed to do, as an attention pattern (paper, Appendix E).

Here stand what all mechanisms share and the simple ones: ``Uniform``, ``Identity`` and ``Previous``. Others are
``OneHot`` (one_hot.py), ``FixedPattern`` (fixed_pattern.py), and those of your own:

    @register
    @dataclass(frozen=True)
    class Window(Mechanism):  # attend equally to the last few positions
        width: int
        name = "window"

        def pattern(self, roles, n_positions):
            seen = torch.ones(n_positions, n_positions).tril().triu(1 - self.width)
            return (seen / seen.sum(dim=-1, keepdim=True))[None]

Its name and its fields are its specification: circuits with it are hashed, saved and loaded by these (circuit_file.py).
``pattern`` may be called by several threads at once. Where what it does changes, change its name or a parameter too:
losses that were kept are found by these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float, Shaped

from circuits.errors import BadInput
from circuits.roles import Roles
from circuits.utils.lazy import torch

PREVIOUS = ("*", "previous")  # the path from every position to the one before


class Mechanism(ABC):
    """An attention pattern that a head is hypothesised to have."""

    own: ClassVar[bool]  # whether somebody else wrote it, so that its patterns are looked at

    def __init_subclass__(cls) -> None:
        """A class that is made of one of ours is somebody else's, too."""
        cls.own = cls.__dict__.get("own", True)

    @property
    @abstractmethod
    def name(self) -> str:
        """``uniform``, ``identity``, ``previous``, ``one_hot``, ``mean``, ``map``, ``given``, or one of your own."""

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.parameters.items() if _is_plain(value))
        return f"{self.name}({said})" if said else self.name

    @property
    def parameters(self) -> dict[str, object]:
        """What tells it from others of its name: its fields."""
        names: list[str] = [field.name for field in fields(self)] if is_dataclass(self) else []
        return {name: getattr(self, name) for name in names}

    @property
    def specification(self) -> object:
        """All of it as plain data, the same for equal mechanisms; errors are those of ``check``."""
        self.check()
        return [self.name, self.parameters] if self.parameters else self.name

    def check(self) -> None:
        """Refuse parameters that cannot be written down.

        Raises:
            BadInput: one is neither a number nor a text nor a tuple of such, or the name is that of one of ours.
        """
        if self.own and self.name in OURS:
            raise BadInput(f"{type(self).__name__} is called {self.name!r}, as one of ours; expected another name")
        for name, value in self.parameters.items():
            if not _is_plain(value):
                kind = type(value).__name__
                raise BadInput(f"{self.name}: {name} is a {kind}; expected a number, a text, or a tuple of such")

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """The attention paths that it claims, as (from-role, to-role), or ``("*", "previous")``."""
        return ()

    @abstractmethod
    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """The attention pattern of every example; the batch is 1 where all examples share it."""


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)


def checked_pattern(mechanism: Mechanism, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
    """A mechanism's pattern; one of somebody else's is looked at before it is used.

    Raises:
        BadInput: it is no attention pattern, or the mechanism does not fit the examples.
    """
    try:
        pattern = mechanism.pattern(roles, n_positions)
    except Exception as error:
        if not mechanism.own or isinstance(error, BadInput):
            raise
        raise BadInput(f"{mechanism} gives no pattern: {type(error).__name__}: {error}") from error
    if mechanism.own:
        if not isinstance(pattern, torch.Tensor):
            raise BadInput(f"{mechanism}: a pattern that is a {type(pattern).__name__}; expected a torch tensor")
        if pattern.ndim != 3 or pattern.shape[0] not in (1, len(roles)) or pattern.shape[1:] != 2 * (n_positions,):
            expected = f"[1 or {len(roles)}, {n_positions}, {n_positions}]"
            raise BadInput(f"{mechanism}: a pattern of shape {[*pattern.shape]}; expected {expected}")
        check_weights(str(mechanism), in_numpy(pattern))
    return pattern.to(roles.positions.device)


def in_numpy(weights: torch.Tensor | np.ndarray) -> np.ndarray:
    """Attention weights of any shape as an array of that shape, in single precision."""
    own = weights if isinstance(weights, np.ndarray) else weights.detach().float().cpu().numpy()
    return np.ascontiguousarray(own, dtype=np.float32)


def check_weights(what: str, weights: Shaped[np.ndarray, "*batch query key"]) -> None:
    """Refuse what is no attention: each row sums to 1 or less, and nobody attends to a later position.

    Raises:
        BadInput: the message begins with ``what``.
    """
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInput(f"{what} holds what is no weight; expected finite numbers from 0 on")
    if (weights.sum(axis=-1) > 1.01).any():  # rounded in half precision a row is a little more than 1
        raise BadInput(f"{what} has a row that sums to more than 1")
    if np.triu(weights, 1).any():
        raise BadInput(f"{what} is against the causal mask: a query attends to a later key")


@dataclass(frozen=True)
class Uniform(Mechanism):
    """Attend equally to everything that the causal mask allows."""

    name = "uniform"
    own = False

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """1/(p+1) at every key up to the query's position p."""
        seen = torch.ones(n_positions, n_positions, device=roles.positions.device).tril()
        return (seen / seen.sum(dim=-1, keepdim=True))[None]


@dataclass(frozen=True)
class Identity(Mechanism):
    """Attend to oneself."""

    name = "identity"
    own = False

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """The identity matrix."""
        return torch.eye(n_positions, device=roles.positions.device)[None]


@dataclass(frozen=True)
class Previous(Mechanism):
    """Attend to the position before; position 0 attends to itself."""

    name = "previous"
    own = False

    @property
    def paths(self) -> tuple[tuple[str, str], ...]:
        """One, from every position to the one before."""
        return (PREVIOUS,)

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Ones directly below the diagonal, and one at the first position."""
        pattern = torch.ones(n_positions - 1, device=roles.positions.device).diag(-1)
        pattern[0, 0] = 1
        return pattern[None]


@dataclass(frozen=True)
class Zero(Mechanism):
    """Attend to nothing; only as the rows of a ``OneHot`` that lie on no path."""

    name = "zero"
    own = False

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """All zeros."""
        return torch.zeros(1, n_positions, n_positions, device=roles.positions.device)


SIMPLE: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (Uniform(), Identity(), Previous())}
ROWS: dict[str, Mechanism] = {**SIMPLE, "zero": Zero()}
ELSEWHERE = ("zero", "identity", "uniform")  # what the rows of a one-hot head on no path may be
REPLACEMENTS = ("uniform", "identity")  # what a row becomes when its path is taken away (paper, Appendix E, step 6)
FIXED = ("mean", "map", "given")  # kinds of fixed patterns
OURS = (*ROWS, *FIXED, "one_hot")

"""Mechanisms: hypotheses about a head, as attention patterns (paper, Appendix E).

This file has the base class, the simple mechanisms ``Uniform``, ``Identity``, ``Previous`` and ``First``, the ablations
of a head's output, ``Idle`` and ``Resample``, and ``Intact``. Others are ``OneHot`` (one_hot.py), ``Soft`` (soft.py),
``FixedPattern`` (fixed_pattern.py), and mechanisms of your own:

    @register
    @dataclass(frozen=True)
    class Window(Mechanism):  # attend equally to the last few positions
        width: int
        name = "window"

        def pattern(self, roles, n_positions):
            seen = torch.ones(n_positions, n_positions).tril().triu(1 - self.width)
            return (seen / seen.sum(dim=-1, keepdim=True))[None]

The name and the fields specify the mechanism: circuits with it are hashed, saved and loaded by them (circuit_file.py).
If you change the pattern, change the name or a parameter, too, because cached losses are found by them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Shaped

from circuits.errors import BadInput
from circuits.heads import Head
from circuits.roles import Roles
from circuits.utils.lazy import torch

Ends = tuple[str, str]  # the source and the target of a row
PREVIOUS = ("*", "previous")  # the path from every position to the position before


class Mechanism(ABC):
    """A hypothesis about a head: an attention pattern for every example."""

    where: tuple[tuple[Ends, Any], ...] = ()  # the conditions of rows
    builtin: ClassVar[bool]  # else a user wrote the class, and its patterns are checked

    def __init_subclass__(cls) -> None:
        """Mark the class as built-in or as a user's, as a subclass of a built-in mechanism is."""
        cls.builtin = cls.__module__.partition(".")[0] == "circuits"

    @property
    @abstractmethod
    def name(self) -> str:
        """``uniform``, ``identity``, ``previous``, ``one_hot``, ``mean``, ``map``, ``given``, or one of your own."""

    def __str__(self) -> str:
        said = ", ".join(f"{name}={value}" for name, value in self.parameters.items() if _is_plain(value))
        return f"{self.name}({said})" if said else self.name

    @property
    def parameters(self) -> dict[str, object]:
        """The values of the fields."""
        names: list[str] = [field.name for field in fields(self)] if is_dataclass(self) else []
        return {name: getattr(self, name) for name in names}

    @property
    def specification(self) -> object:
        """Plain data that specify the mechanism, equal for equal mechanisms; BadInput if as ``check``."""
        self.check()
        return [self.name, self.parameters] if self.parameters else self.name

    def check(self) -> None:
        """Check that the mechanism can be saved.

        Raises:
            BadInput: a parameter is not a number, a text, or a tuple of these, or the name is a built-in name.
        """
        if not self.builtin and self.name in OURS:
            raise BadInput(f"{type(self).__name__} has the built-in name {self.name!r}; expected another name")
        for name, value in self.parameters.items():
            if not _is_plain(value):
                kind = type(value).__name__
                raise BadInput(f"{self.name}: {name} is a {kind}; expected a number, a text, or a tuple of these")

    @property
    def paths(self) -> tuple[Ends, ...]:
        """The attention paths of the mechanism, as (source, target), or ``("*", "previous")``."""
        return ()

    def holds(self, source: str, target: str, roles: Roles) -> Bool[torch.Tensor, "batch instance"]:
        """Return for every example and instance whether a row holds."""
        return torch.ones_like(roles[source], dtype=torch.bool)

    @property
    def varies(self) -> bool:
        """Whether the pattern may differ between examples; true of a user's mechanism that does not say otherwise."""
        return not self.builtin

    @abstractmethod
    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return the attention pattern of every example; the batch is 1 if all examples share the pattern."""


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if isinstance(value, tuple) else isinstance(value, bool | int | float | str)


def head_pattern(
    head: Head, mechanism: Mechanism, roles: Roles, n_positions: int
) -> Float[torch.Tensor, "#batch query key"]:
    """Return the pattern that a mechanism gives a head, without attention to padding; that of a user's is checked.

    The roles are those of the head's layer.

    Raises:
        BadInput: the mechanism does not return an attention pattern, does not fit the examples, or leaves the window;
            the message begins with the head.
    """
    what = f"{head}: {mechanism}"
    try:
        pattern = mechanism.pattern(roles, n_positions)
    except BadInput as error:
        raise BadInput(f"{head}: {error}") from error
    except Exception as error:
        if mechanism.builtin:
            raise
        raise BadInput(f"{what} gives no pattern: {type(error).__name__}: {error}") from error
    if not mechanism.builtin:
        if not isinstance(pattern, torch.Tensor):
            raise BadInput(f"{what} gives a {type(pattern).__name__}; expected a torch tensor")
        if pattern.ndim != 3 or pattern.shape[0] not in (1, len(roles)) or pattern.shape[1:] != 2 * (n_positions,):
            expected = f"[1 or {len(roles)}, {n_positions}, {n_positions}]"
            raise BadInput(f"{what} gives the shape {[*pattern.shape]}; expected {expected}")
        check_weights(what, in_numpy(pattern))
        check_mask(what, in_numpy(pattern), roles)
    pattern = roles.within(pattern.to(roles.positions.device))
    if roles.window is not None:
        check_mask(what, in_numpy(pattern), roles)
    return pattern


def in_numpy(weights: torch.Tensor | np.ndarray) -> np.ndarray:
    """Return attention weights as an array of the same shape, in single precision."""
    array = weights if isinstance(weights, np.ndarray) else weights.detach().float().cpu().numpy()
    return np.ascontiguousarray(array, dtype=np.float32)


def check_weights(what: str, weights: Shaped[np.ndarray, "*batch query key"]) -> None:
    """Check attention weights: each row sums to 1 or less; BadInput if the weights are not attention weights; the
    message begins with ``what``.
    """
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise BadInput(f"{what} has an entry that is not a weight; expected finite numbers of 0 or more")
    if (weights.sum(axis=-1) > 1.01).any():  # in half precision a row may sum to slightly more than 1
        raise BadInput(f"{what} has a row that sums to more than 1; expected 1 or less")


def check_mask(what: str, weights: Shaped[np.ndarray, "*batch query key"], roles: Roles) -> None:
    """Check that no query attends to a later key, if there is a causal mask, or out of its window, if there is one;
    BadInput if a query attends to such a key; the message begins with ``what``.
    """
    if roles.causal and np.triu(weights, 1).any():
        raise BadInput(f"{what} is against the causal mask: a query attends to a later key")
    if roles.window is not None and np.tril(weights, -roles.window).any():
        raise BadInput(f"{what} leaves the window of {roles.window} positions: a query attends to a key before it")


@dataclass(frozen=True)
class Uniform(Mechanism):
    """Attend equally to all positions that the causal mask and the layer's window allow; without them, to all."""

    name = "uniform"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return 1/(p+1) at every key up to the query's position p; without a causal mask, 1/n at all n keys.

        In a window of w positions it is 1/w at the last w of these keys, if there are as many.
        """
        seen = roles.mask(n_positions).float()
        return (seen / seen.sum(dim=-1, keepdim=True))[None]


@dataclass(frozen=True)
class Identity(Mechanism):
    """Attend to oneself."""

    name = "identity"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return the identity matrix."""
        return torch.eye(n_positions, device=roles.positions.device)[None]


@dataclass(frozen=True)
class Previous(Mechanism):
    """Attend to the position before; position 0 attends to itself."""

    name = "previous"

    @property
    def paths(self) -> tuple[Ends, ...]:
        """One path, from every position to the position before."""
        return (PREVIOUS,)

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return ones directly below the diagonal, and a one at the first position."""
        pattern = torch.ones(n_positions - 1, device=roles.positions.device).diag(-1)
        pattern[0, 0] = 1
        return pattern[None]


@dataclass(frozen=True)
class First(Mechanism):
    """Attend to the first token, as heads of language models do that have nothing to look at (an attention sink)."""

    name = "first"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return ones in the column of the first token."""
        column = torch.nn.functional.one_hot(
            torch.zeros_like(roles.mask(n_positions)[0], dtype=torch.long), n_positions
        )
        return roles.from_first_token(column[None].float(), -2, -1)


@dataclass(frozen=True)
class Zero(Mechanism):
    """Attend to nothing; only for the rows of a ``OneHot`` that are on none of its paths."""

    name = "zero"

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Return zeros."""
        return torch.zeros(1, n_positions, n_positions, device=roles.positions.device)


@dataclass(frozen=True)
class Intact(Mechanism):
    """The head stays as it is: it looks at which tokens stand somewhere, and no path says where.

    A circuit that names a head so says that the head is needed, and nothing of what it does.
    """

    name = "intact"

    @property
    def varies(self) -> bool:
        """True: its pattern is the model's own."""
        return True

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Raise BadInput: nothing is replaced."""
        raise BadInput("intact is no pattern: the head's own is not replaced")


class OutputAblation(Mechanism):
    """An ablation of a head's output, whatever it attends to; only what runs a model can do it."""

    needs: ClassVar[str]  # what it takes, for the message

    def pattern(self, roles: Roles, n_positions: int) -> Float[torch.Tensor, "#batch query key"]:
        """Raise BadInput: the output is replaced, not the pattern."""
        raise BadInput(f"{self.name} replaces a head's output and has no pattern; {self.needs}")


@dataclass(frozen=True)
class Idle(OutputAblation):
    """The head is idle: it writes its average output, by position. Mean ablation (Wang et al. 2022)."""

    name = "idle"
    needs = "expected the average outputs: averages=circuits.averages(model, task)"


@dataclass(frozen=True)
class Resample(OutputAblation):
    """Write what this head writes on the counterfactual input of the same example: resample ablation.

    It ablates a head and explains nothing. The model runs on ``Examples.counterfactual``.
    """

    name = "resample"
    needs = "evaluate and run_ablated do it"


SIMPLE: dict[str, Mechanism] = {mechanism.name: mechanism for mechanism in (Uniform(), Identity(), Previous())}
ABLATIONS: dict[str, Mechanism] = {"idle": Idle(), "resample": Resample()}
NAMED: dict[str, Mechanism] = {**SIMPLE, "first": First(), **ABLATIONS, "intact": Intact()}
ROWS: dict[str, Mechanism] = {**SIMPLE, "first": First(), "zero": Zero()}
ELSEWHERE = ("zero", "identity", "uniform")  # the choices for the other rows of a one-hot head
REPLACEMENTS = ("uniform", "identity")  # the row of a removed path (paper, Appendix E, step 6)
FIXED = ("mean", "map", "given")  # kinds of fixed patterns
OURS = (*NAMED, *FIXED, "zero", "one_hot", "soft")

"""Mechanisms of your own, by name, so that circuits with them can be saved and loaded.

In Python, ``register`` registers a class. The command line finds the classes that an installed package offers:

    [project.entry-points."circuits.mechanisms"]
    window = "my_package:Window"
"""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass
from importlib.metadata import entry_points
from typing import TypeVar

from circuits.errors import BadInput
from circuits.mechanisms.mechanism import OURS, Mechanism

Kind = TypeVar("Kind", bound=Mechanism)
_KNOWN: dict[str, type[Mechanism]] = {}


def register(kind: type[Kind]) -> type[Kind]:
    """Register a mechanism class by its name; a class decorator.

    Raises:
        BadInput: the name is taken or not allowed, or the class cannot be hashed.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name) or name in OURS:
        raise BadInput(f"{kind.__name__} has the name {name!r}; expected lower-case letters, and no built-in name")
    if is_dataclass(kind) and "mechanism" in (field.name for field in fields(kind)):
        raise BadInput(f"{kind.__name__} has a field called mechanism, which means its name in files; expected another")
    if kind.__hash__ is None:
        raise BadInput(f"{kind.__name__} cannot be hashed; expected @dataclass(frozen=True)")
    known = _KNOWN.get(name, kind)
    # A class of the same module and name is the same class, from a notebook cell that was run again.
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise BadInput(f"two mechanisms are called {name!r}: {known.__qualname__} and {kind.__qualname__}")
    _KNOWN[name] = kind
    return kind


def registered(name: str) -> type[Mechanism] | None:
    """Return the mechanism class of this name, or None."""
    if name not in _KNOWN:
        for entry in entry_points(group="circuits.mechanisms", name=name):
            try:
                kind = entry.load()
            except Exception as error:  # user code may raise anything on import
                raise BadInput(f"the mechanism {name!r} of {entry.value} cannot be loaded: {error}") from error
            register(kind)
    return _KNOWN.get(name)

"""Mechanisms of one's own, by name, so that circuits with them can be saved and loaded.

In Python ``register`` makes a class known. The command line finds those that an installed package offers:

    [project.entry-points."circuits.mechanisms"]
    window = "my_package:Window"
"""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from typing import TypeVar

from circuits.errors import BadInput
from circuits.mechanisms.mechanism import OURS, Mechanism

Own = TypeVar("Own", bound=Mechanism)
_KNOWN: dict[str, type[Mechanism]] = {}


def register(kind: type[Own]) -> type[Own]:
    """Make a class of mechanisms known by its name; a class decorator.

    Raises:
        BadInput: its name is taken or no name, or it cannot be hashed.
    """
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9_]*", name) or name in OURS:
        raise BadInput(f"{kind.__name__} has the name {name!r}; expected small letters, and none that is taken")
    if kind.__hash__ is None:
        raise BadInput(f"{kind.__name__} cannot be hashed; expected @dataclass(frozen=True)")
    known = _KNOWN.get(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):  # else its cell was run again
        raise BadInput(f"two mechanisms are called {name!r}: {known.__qualname__} and {kind.__qualname__}")
    _KNOWN[name] = kind
    return kind


def registered(name: str) -> type[Mechanism] | None:
    """The class of mechanisms of this name, if there is one."""
    if name not in _KNOWN:
        for entry in entry_points(group="circuits.mechanisms", name=name):
            try:
                kind = entry.load()
            except Exception as error:  # whatever somebody else's code does when it is imported
                raise BadInput(f"the mechanism {name!r} of {entry.value} cannot be loaded: {error}") from error
            register(kind)
    return _KNOWN.get(name)

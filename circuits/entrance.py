"""Where input enters: the arguments of public functions, read by their names once, before any work.

An argument that cannot be used ends in one clear line; numbers of any library become Python's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from circuits.circuit import Circuit
from circuits.errors import BadInput, real, whole
from circuits.given import number_of_examples
from circuits.model.state import check_state
from circuits.roles import Roles
from circuits.task import Examples, check_task

Given = ParamSpec("Given")
Result = TypeVar("Result")


def entrance(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Read the arguments of a public function, by their names, before it runs."""
    signature = inspect.signature(function)
    readers = {name: READERS[name] for name in signature.parameters if name in READERS}
    for name in readers.keys() & {"task"}:  # a function may ask for more than a Task
        kind = signature.parameters[name].annotation
        kind = inspect.unwrap(function).__globals__[kind] if isinstance(kind, str) else kind
        readers[name] = _checked(functools.partial(check_task, kind=kind))

    def entered(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # Python's own message names the function
            return function(*args, **kwargs)
        for name, read in readers.items():
            if name in bound.arguments and not _left_out(bound.arguments[name], signature.parameters[name]):
                bound.arguments[name] = read(bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return functools.update_wrapper(entered, function)


def _left_out(value: object, parameter: inspect.Parameter) -> bool:
    return value is None and parameter.default is None


def _checked(check: Callable[[Any], None]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        check(value)
        return value

    return read


def _a(kind: type, name: str, hint: str) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kind):
            raise BadInput(f"{name}: got {type(value).__name__}; expected {kind.__name__}{hint}")
        return value

    return read


def _circuits(value: Any) -> list[Circuit]:
    if isinstance(value, Circuit | Mapping | str) or not hasattr(value, "__iter__"):
        raise BadInput(f"circuits: got {type(value).__name__}; expected a list, such as [circuit]")
    return [READERS["circuit"](one) for one in value]


def _integer(what: str, least: int | None = None, most: int | None = None) -> Callable[[Any], Any]:
    return lambda value: whole(what, value, least, most)


READERS: dict[str, Callable[[Any], Any]] = {
    "model": _checked(check_state),
    "task": _checked(check_task),
    "circuit": _a(Circuit, "circuit", " (Circuit({'L0H0': 'uniform'}), or load_circuit(path))"),
    "circuits": _circuits,
    "examples": _a(Examples, "examples", "; a task gives some: task.examples(8, seed=0)"),
    "roles": _a(Roles, "roles", " (examples.roles)"),
    "seed": _integer("the seed", 0, 2**63 - 1),
    "n_examples": number_of_examples,
    "max_examples": _integer("max_examples", 0),
    "example": _integer("the example"),
    "layer": _integer("the layer"),
    "head": _integer("the head"),
    "threshold": lambda value: real("the threshold", value, above=0.0),
}

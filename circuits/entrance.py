"""Where input enters: the arguments of public functions, read by their names once, before any work.

An argument that cannot be used ends in one clear line; numbers of any library become Python's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from functools import partial
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
    if "task" in readers:  # a function may ask for more than a Task
        kind = signature.parameters["task"].annotation
        readers["task"] = partial(check_task, kind=inspect.unwrap(function).__globals__.get(kind, kind))

    def entered(*args: Given.args, **kwargs: Given.kwargs) -> Result:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # Python's own message names the function
            return function(*args, **kwargs)
        for name in filter(bound.arguments.__contains__, readers):
            if bound.arguments[name] is not None or signature.parameters[name].default is not None:
                bound.arguments[name] = readers[name](bound.arguments[name])
        return function(*bound.args, **bound.kwargs)

    return functools.update_wrapper(entered, function)


def _model(value: Any) -> Any:
    check_state(value)
    return value


def _a(kind: type, name: str, hint: str, value: Any) -> Any:
    if not isinstance(value, kind):
        raise BadInput(f"{name}: got {type(value).__name__}; expected {kind.__name__}{hint}")
    return value


def _circuits(value: Any) -> list[Circuit]:
    if isinstance(value, Circuit | Mapping | str) or not hasattr(value, "__iter__"):
        raise BadInput(f"circuits: got {type(value).__name__}; expected a list, such as [circuit]")
    return [READERS["circuit"](one) for one in value]


READERS: dict[str, Callable[[Any], Any]] = {
    "model": _model,
    "task": check_task,
    "circuit": partial(_a, Circuit, "circuit", " (Circuit({'L0H0': 'uniform'}), or load_circuit(path))"),
    "circuits": _circuits,
    "examples": partial(_a, Examples, "examples", "; a task gives some: task.examples(8, seed=0)"),
    "roles": partial(_a, Roles, "roles", " (examples.roles)"),
    "seed": partial(whole, "the seed", least=0, most=2**63 - 1),
    "n_examples": number_of_examples,
    "example": partial(whole, "the example"),
    "layer": partial(whole, "the layer"),
    "head": partial(whole, "the head"),
    "threshold": partial(real, "the threshold", above=0.0),
}

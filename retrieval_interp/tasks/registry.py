"""All tasks by name, and their descriptions in the config of a model directory."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from typing import Any, get_type_hints

from retrieval_interp.tasks.conditional import ConditionalTask
from retrieval_interp.tasks.equations import EquationsTask
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import TrainableTask
from retrieval_interp.tasks.words import WordsTask

TASKS: dict[str, type[TrainableTask]] = {
    "retrieval": RetrievalTask,
    "conditional": ConditionalTask,
    "equations": EquationsTask,
    "words": WordsTask,
}
WANTED = {int: "a whole number", bool: "true or false", str: "a text"}


def describe(task: TrainableTask) -> dict[str, Any]:
    """Return a task as plain values, from which ``task_of`` makes an equal task."""
    return {"problem": problem_of(task), **asdict(task)}  # type: ignore[call-overload]  # every task is a dataclass


def problem_of(task: TrainableTask) -> str:
    """Return the name of a task's kind."""
    return next(name for name, kind in TASKS.items() if type(task) is kind)


def task_of(described: Mapping[str, Any]) -> TrainableTask:
    """Return the task of a description; the default problem is ``retrieval``.

    Raises:
        ValueError: a name or a field is unknown, a field is missing, or a value has the wrong type.
        BadInput: a value is out of range.
    """
    values = dict(described)
    name = values.pop("problem", "retrieval")
    if name not in TASKS:
        raise ValueError(f"unknown problem {name!r}; expected one of {', '.join(TASKS)}")
    hints = get_type_hints(TASKS[name])
    known = {field.name: hints[field.name] for field in fields(TASKS[name])}  # type: ignore[arg-type]
    for field, value in values.items():
        if field not in known:
            raise ValueError(f"unknown field {field!r}; expected {', '.join(known)}")
        kind = known[field]
        if issubclass(kind, StrEnum):
            values[field] = kind(value)
        elif type(value) is not kind:
            raise ValueError(f"{field} is {value!r}; expected {WANTED[kind]}")
    try:
        return TASKS[name](**values)
    except TypeError as error:  # a field is missing
        raise ValueError(error) from error

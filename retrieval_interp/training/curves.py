"""Curves over the steps of a training run: losses, and attention along paths, read from the files of the run."""

import csv
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from circuits.errors import BadInput
from circuits.utils.files import read_text
from retrieval_interp.records import first_error

EMERGED = 0.5  # a path has emerged above it, a partial loss has dropped below it
MOST_STEPS = 10**18
VALIDATION = "validation"  # the validation loss in a log; its parts are named validation_x1 and so on

Curve = Mapping[int, float]  # from step to value, by ascending step


def first_crossing(curve: Curve, level: float) -> float | None:
    """Return the first step at which a curve is above a level, with linear interpolation.

    This is the curve's first step if it starts above the level, and None if it never exceeds the level.
    """
    (first, height), *_ = curve.items()
    if height > level:
        return float(first)
    for (before, low), (step, high) in pairwise(curve.items()):
        if high > level:
            return before + (level - low) / (high - low) * (step - before)
    return None


def first_below(losses: Curve, level: float) -> float | None:
    """Return the first step at which a loss is below a level, as ``first_crossing`` does."""
    return first_crossing({step: 1 - loss for step, loss in losses.items()}, 1 - level)


def parts_of(losses: Mapping[str, Curve]) -> list[str]:
    """Return the names of the partial losses in a log."""
    return [name for name in losses if name != "loss" and not name.startswith(VALIDATION)]


class Losses(BaseModel):
    """A mean loss, and the partial losses by name."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)
    loss: float
    components: dict[str, float] = {}


class Line(Losses):
    """A line of a training log; ``TrainingRun`` writes them."""

    step: int = Field(gt=0, le=MOST_STEPS)
    components: dict[str, float] = Field(min_length=1)
    validation: Losses | None = None


def read_losses(path: Path) -> dict[str, Curve]:
    """Read the losses of a training log.

    Returns:
        ``loss`` and the partial losses, averaged over the training steps since the line before; and at the steps that
        have them, ``validation`` and its parts, such as ``validation_x1``.

    Raises:
        BadInput: the log is missing, or a line is not a line of a training log, or is out of order.
    """
    curves: dict[str, dict[int, float]] = {"loss": {}, VALIDATION: {}}
    last = None
    for number, text in enumerate(read_text(path, "the log of a run").splitlines(), start=1):
        try:
            line = Line.model_validate_json(text)
            if last and (line.step <= last.step or [*line.components] != [*last.components]):
                raise ValueError(f"step {line.step} of {', '.join(line.components)} after step {last.step}")
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: not a line of a training log ({first_error(error)})") from error
        last, row = line, {"loss": line.loss, **line.components}
        if line.validation:
            row[VALIDATION] = line.validation.loss
            row |= {f"{VALIDATION}_{name}": loss for name, loss in line.validation.components.items()}
        for name, loss in row.items():
            curves.setdefault(name, {})[line.step] = loss
    return {**curves}


def read_attention(path: Path) -> dict[str, Curve]:
    """Read a table of attention along paths, by path name; lines that begin with # are skipped.

    Raises:
        BadInput: the file is missing, or not such a table.
    """
    text = read_text(path, "a table of attention along paths")
    try:
        (first, *names), *rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
        table = {int(step): dict(zip(names, map(float, row), strict=True)) for step, *row in rows}
        if first != "step" or len(table) < 2 or [*table] != sorted(table) or len(table) < len(rows):
            raise ValueError("expected a column step of two steps or more, in ascending order")
    except (ValueError, csv.Error) as error:
        raise BadInput(f"{path}: not a table of attention along paths ({error})") from error
    if max(table) > MOST_STEPS or not all(0 <= one <= 1.0001 for row in table.values() for one in row.values()):
        raise BadInput(f"{path}: holds a step above 10^18, or attention that is not between 0 and 1")
    return {name: {step: row[name] for step, row in table.items()} for name in names}

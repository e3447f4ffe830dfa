"""Curves over the steps of a training run: losses, and attention along paths, read from the files of the run."""

import csv
import json
import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.utils.files import read_text

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


def read_losses(path: Path) -> dict[str, Curve]:
    """Read the losses of a training log.

    Returns:
        ``loss`` and the partial losses, averaged over the training steps since the line before; and at the steps that
        have them, ``validation`` and its parts, such as ``validation_x1``.

    Raises:
        BadInput: the log is missing, or a line is not a line of a training log, or is out of order.
    """
    curves: dict[str, dict[int, float]] = {"loss": {}, VALIDATION: {}}
    parts: list[str] = []
    last = 0
    for number, line in enumerate(read_text(path, "the log of a run").splitlines(), start=1):
        try:
            record = json.loads(line)
            step, row = int(record["step"]), _row(record)
            if not last < step <= MOST_STEPS:
                raise ValueError(f"step {step} after step {last}")
            if parts not in ([], [*record["components"]]):
                raise ValueError("other partial losses than in the lines before")
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise BadInput(f"{path}, line {number}: not a line of a training log ({error})") from error
        last, parts = step, [*record["components"]]
        for name, loss in row.items():
            curves.setdefault(name, {})[step] = loss
    return {**curves}


def _row(record: dict[str, Any]) -> dict[str, float]:
    """Return the losses in a record of a log, by name."""
    if not record["components"]:
        raise ValueError("no partial losses")
    row = {"loss": float(record["loss"]), **{name: float(loss) for name, loss in record["components"].items()}}
    if VALIDATION in record:
        row[VALIDATION] = float(record[VALIDATION]["loss"])
        parts = record[VALIDATION].get("components", {})
        row |= {f"{VALIDATION}_{name}": float(loss) for name, loss in parts.items()}
    if not all(map(math.isfinite, row.values())):
        raise ValueError("a loss is not a finite number")
    return row


def read_attention(path: Path) -> dict[str, Curve]:
    """Read a table of attention along paths, by path name; lines that begin with # are skipped.

    Raises:
        BadInput: the file is missing, or not such a table.
    """
    text = read_text(path, "a table of attention along paths")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    try:
        if "step" not in (rows.fieldnames or ()):
            raise ValueError("no column step")
        table = [(int(row.pop("step")), {name: float(value) for name, value in row.items()}) for row in rows]
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise BadInput(f"{path}: not a table of attention along paths ({error})") from error
    if len(table) < 2 or any(step >= then for (step, _), (then, _) in pairwise(table)):
        raise BadInput(f"{path}: expected two steps or more, in ascending order")
    if table[-1][0] > MOST_STEPS:
        raise BadInput(f"{path}: holds step {table[-1][0]}; expected at most 10^18")
    if not all(0 <= attention <= 1.0001 for _, row in table for attention in row.values()):
        raise BadInput(f"{path}: holds attention that is not between 0 and 1")
    return {name: {step: row[name] for step, row in table} for name in table[0][1]}

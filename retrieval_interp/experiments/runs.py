"""Many small runs whose learning is compared: each is trained in memory, and kept as one line of a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

from circuits.errors import BadInput
from circuits.utils.files import append_line, read_text
from circuits.utils.lazy import torch
from retrieval_interp.models.presets import Recipe
from retrieval_interp.records import record_of
from retrieval_interp.training.training_step import TrainingStep, train_steps

Key = TypeVar("Key")
Run = TypeVar("Run")

RUNS = "runs.jsonl"
MEASURE_EVERY = 20  # steps between two points of a curve


def stretches(take_step: TrainingStep, seed: int) -> Iterator[tuple[int, list[float]]]:
    """Train to the end of the recipe; after every 20 steps the step, and the mean partial losses since.

    Raises:
        BadInput: the recipe is shorter than that.
    """
    check_length(take_step.recipe)
    running = torch.zeros(len(take_step.task.loss_components))
    for step, losses, _ in train_steps(take_step, seed):
        running += losses.cpu()
        if step % MEASURE_EVERY == 0:
            yield step, (running / MEASURE_EVERY).tolist()
            running.zero_()


def check_length(recipe: Recipe) -> None:
    """Refuse a recipe without a single point of a curve."""
    if recipe.steps < MEASURE_EVERY:
        raise BadInput(f"{recipe.steps} steps; expected at least {MEASURE_EVERY}, between two points of a curve")


def all_runs(
    wanted: Sequence[Key],
    done: dict[Key, Run],
    file: Path,
    train: Callable[[Key, Callable[[float], None]], Run],
    progress: Callable[[float], None],
) -> list[Run]:
    """Every wanted run, in that order; those that are done already are not repeated.

    Args:
        wanted: what tells the runs apart.
        done: what ``file`` holds.
        file: to which each new run is added, a dataclass as one line of JSON.
        train: makes a run, and tells its finished share, 0 to 1.
        progress: is told the finished share of all, 0 to 1.
    """
    for place, key in enumerate(wanted):

        def of_all(share: float, place: int = place) -> None:
            progress((place + share) / len(wanted))

        if key not in done:
            done[key] = train(key, of_all)
            append_line(file, json.dumps(asdict(done[key])))  # type: ignore[call-overload]  # a run is a dataclass
        of_all(1.0)
    return [done[key] for key in wanted]


def read_runs(path: Path, kind: type[Run]) -> list[Run]:
    """The runs of a file, each a dataclass read from its line; none where there is no file.

    A last line that was cut off, when the experiment was killed, is no run; ``append_line`` removes it.

    Raises:
        BadInput: a line is damaged.
    """
    found = []
    begun = path.exists() and (not path.is_file() or path.stat().st_size > 0)
    whole, _, _ = read_text(path, "the runs of an experiment").rpartition("\n") if begun else ("", "", "")
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found.append(record_of(kind, line))
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: not a run of this experiment ({error})") from error
    return found

"""Many small training runs that are compared: each is trained in memory and kept as one line of a file."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from filelock import FileLock

from circuits.errors import BadInput
from circuits.utils.files import append_line, read_text
from circuits.utils.lazy import torch
from retrieval_interp.locks import LOCKS, claimed
from retrieval_interp.models.presets import Recipe
from retrieval_interp.records import record_of
from retrieval_interp.training.training_step import TrainingStep, train_steps

Key = TypeVar("Key")
Run = TypeVar("Run")

RUNS = "runs.jsonl"
WAIT = 1.0  # seconds between two looks at the runs of other processes
MEASURE_EVERY = 20  # the number of training steps between two points of a curve


def train_in_intervals(take_step: TrainingStep, seed: int) -> Iterator[tuple[int, list[float]]]:
    """Train to the end of the recipe; yield every 20 steps the step and the mean training losses over these steps.

    Raises:
        BadInput: the recipe has fewer than 20 steps.
    """
    check_length(take_step.recipe)
    running = torch.zeros(len(take_step.task.trained_components))
    for step, losses, _ in train_steps(take_step, seed):
        running += losses.cpu()
        if step % MEASURE_EVERY == 0:
            yield step, (running / MEASURE_EVERY).tolist()
            running.zero_()


def check_length(recipe: Recipe) -> None:
    """Check that a recipe has enough steps for one point of a curve.

    Raises:
        BadInput: the recipe has fewer than 20 steps.
    """
    if recipe.steps < MEASURE_EVERY:
        raise BadInput(f"{recipe.steps} steps; expected at least {MEASURE_EVERY}, the interval of the measurements")


def all_runs(
    wanted: Sequence[Key],
    read: Callable[[], dict[Key, Run]],
    file: Path,
    train: Callable[[Key, Callable[[float], None]], Run],
    progress: Callable[[float], None],
) -> list[Run]:
    """Train the wanted runs that are not done yet, and return all wanted runs in their order.

    Several processes can do so at once with the same file. None repeats what another one does, and each of them returns
    when all runs are done.

    Args:
        wanted: the keys of the runs.
        read: reads the runs that ``file`` holds, by key.
        file: the file to which each new run, a dataclass, is added as one line of JSON.
        train: trains the run of a key; it calls its second argument with the finished share of the run, 0 to 1.
        progress: is called with the finished share of all runs, 0 to 1.
    """
    locks, done = file.parent / LOCKS, read()
    while missing := [key for key in wanted if key not in done]:
        before = len(done)
        for key in missing:
            with claimed(locks / sha256(repr(key).encode()).hexdigest()[:16]) as mine:
                done = read()
                if not mine or key in done:
                    continue
                finished = sum(one in done for one in wanted)
                run = train(key, lambda share, n=finished: progress((n + share) / len(wanted)))  # type: ignore[misc]
                with FileLock(locks / RUNS):
                    append_line(file, json.dumps(asdict(run)))  # type: ignore[call-overload]  # a run is a dataclass
        done = read()
        if len(done) == before:  # other processes train what is missing
            time.sleep(WAIT)
    progress(1.0)
    return [done[key] for key in wanted]


def read_runs(path: Path, kind: type[Run]) -> list[Run]:
    """Read the runs of a file, each a dataclass from one line; return an empty list if there is no file.

    An incomplete last line, from an experiment that was killed, is ignored; ``append_line`` removes it.

    Raises:
        BadInput: a line is damaged.
    """
    found = []
    begun = path.exists() and (not path.is_file() or path.stat().st_size > 0)
    whole = read_text(path, "the runs of an experiment").rpartition("\n")[0] if begun else ""
    for number, line in enumerate(whole.splitlines(), start=1):
        try:
            found.append(record_of(kind, line))
        except ValueError as error:
            raise BadInput(f"{path}, line {number}: not a run of this experiment ({error})") from error
    return found

"""A sweep. Each run is a model directory that training continues, and it is finished when it has a result.

FOLDER/laptop_ic_3/seed-0002/    a model directory, and result.csv, which is written last
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.utils.files import read_text, to_path, write_atomically
from circuits.utils.lazy import pandas as pd
from circuits.utils.progress import Progress, shown
from retrieval_interp.locks import claimed
from retrieval_interp.logs import append_line
from retrieval_interp.models.model_dir import CHECKPOINTS, CONFIG, LOCK, LOG, STATE, read_config
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.plan import Run
from retrieval_interp.training.curves import MOST_STEPS, read_losses
from retrieval_interp.training.training import LOG_EVERY, VALIDATION_EXAMPLES, TrainingRun, run_config
from retrieval_interp.training.training_step import choose_device

RESULT = "result.csv"
COLUMNS: dict[str, Any] = {
    **{"preset": str, "seed": "int64", "symbol": str, "loss": float},
    **{"fell": float, "seconds": float, "device": str},
}
LAST, EVERY = 100, 10  # final steps over which the validation loss is averaged (paper, section 7.1), and how often
VALIDATED = "last_validations.jsonl"  # these losses, until there is a result
LEARNED = 0.5  # a symbol with a partial loss below it counts as learned (paper, section 7.2)

Outcome = tuple[Run, str | None]  # a run, and why it failed, or None


def place(folder: Path, run: Run) -> Path:
    """Return the model directory of a run, whether it exists or not."""
    return folder / run.preset / f"seed-{run.seed:04d}"


def train_many(
    presets: Sequence[str], seeds: int, folder: Path | str, *, device: str = "auto", progress: Progress | None = None
) -> pd.DataFrame:
    """Train every preset with every seed, except runs that are already in the folder.

    Args:
        presets: the names of the presets.
        seeds: the number of seeds of each preset, from 0.
        folder: the folder of the model directories; unfinished runs in it are continued.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Returns:
        the table of ``read_runs``, with one row for every run and symbol.

    Raises:
        BadInput: there is no such preset, a run in the folder is damaged or has other settings, or a run fails.
    """
    if not presets or seeds < 1:
        raise BadInput(f"{len(presets)} presets with {seeds} seeds; expected at least one of each")
    runs, folder = [Run(name, seed) for name in presets for seed in range(seeds)], to_path(folder)
    with shown(progress, "training") as progress:
        failures = sweep(runs, folder, device, progress)
    for run, reason in failures.items():
        raise BadInput(f"{run} failed: {reason}")
    return results(runs, folder)


def sweep(runs: Sequence[Run], folder: Path, device: str, progress: Progress) -> dict[Run, str]:
    """Train every run that is not finished.

    Args:
        runs: the runs that are wanted.
        folder: the folder of their model directories.
        device: a name for ``choose_device``.
        progress: is called with the share of the runs that have ended, 0 to 1.

    Returns:
        why runs failed.

    Raises:
        BadInput: a run in the folder is damaged, or has other settings than its preset has now.
    """
    for run in runs:
        _start(place(folder, run), run)
    results(runs, folder)
    missing = [run for run in runs if not (place(folder, run) / RESULT).exists()]
    failures: dict[Run, str] = {}
    progress(1 - len(missing) / len(runs))
    for ended, (run, reason) in enumerate(one_by_one(missing, folder, device), start=1):
        if reason is not None:
            failures[run] = reason
        progress(1 - (len(missing) - ended) / len(runs))
    return failures


def one_by_one(runs: Sequence[Run], folder: Path, device: str) -> Iterator[Outcome]:
    """Train runs in this process: first those that no other process trains, then what the others left."""
    elsewhere = []
    for run in runs:
        reason = train(place(folder, run), device, wait=False)
        if reason or (place(folder, run) / RESULT).exists():
            yield run, reason
        else:
            elsewhere.append(run)
    for run in elsewhere:
        yield run, train(place(folder, run), device)


def train(folder: Path, device: str, wait: bool = True) -> str | None:
    """Train a started run from its last saved state to its end, unless it is finished; return why it failed, or None.

    Args:
        folder: the model directory.
        device: a name for ``choose_device``.
        wait: whether to wait while another process trains the run; else it is left to the other.
    """
    try:
        with claimed(folder / LOCK, wait) as ours:
            if ours and not (folder / RESULT).exists():
                _train(folder, device)
    except Exception as error:  # whatever it is, the other runs go on
        return reason_of(error)
    return None


def reason_of(error: Exception) -> str:
    """Return an error in one line, with its class unless it is a BadInput."""
    line = (str(error).strip().splitlines() or [""])[0]
    return line if isinstance(error, BadInput) else f"{type(error).__name__}: {line}"


def _start(folder: Path, run: Run) -> None:
    """Write the config of a run; or if there is one, check that it says the same."""
    wanted = run_config(run.preset, preset(run.preset), run.seed)
    if not (folder / CONFIG).exists():
        write_atomically(folder / CONFIG, wanted)
    there, now = read_config(folder), json.loads(wanted)
    same = {part: (there.get(part), now[part]) for part in ("task", "architecture")}
    same |= {part: (there.get("made", {}).get(part), now["made"][part]) for part in ("preset", "seed", "recipe")}
    if other := [part for part, (before, after) in same.items() if before != after]:
        raise BadInput(f"{folder}: was made with another {other[0]} than {run.preset} has now; choose another folder")


def _train(folder: Path, device: str) -> None:
    run = TrainingRun(folder, choose_device(device), compiled=True)
    fresh = run.task.examples(VALIDATION_EXAMPLES, 0).to(run.take_step.device)
    while True:
        left = run.recipe.steps - run.step
        if run.step and left < LAST and left % EVERY == 0:
            losses = dict(zip(run.task.loss_components, run.take_step.validate(fresh).tolist(), strict=True))
            append_line(folder / VALIDATED, json.dumps({"step": run.step, **losses}))
        if not left:
            break
        run.advance()
    run.finish()
    write_atomically(folder / RESULT, _result(run).to_csv(index=False))
    shutil.rmtree(folder / CHECKPOINTS)
    for file in (STATE, VALIDATED):
        (folder / file).unlink()


def _result(run: TrainingRun) -> pd.DataFrame:
    """Return the table of a run that has ended: its losses, and the steps at which they fell."""
    whole = run.recipe.steps // 2 + LOG_EVERY if run.recipe.growing else 0  # before, a growing task lacks symbols
    names, training = [*run.task.loss_components], read_losses(run.folder / LOG)
    below = {name: [s for s, loss in training[name].items() if s >= whole and loss < LEARNED] for name in names}
    lines = read_text(run.folder / VALIDATED, "losses").splitlines()
    by_step = {one["step"]: one for one in map(json.loads, lines)}  # a run that was continued may repeat a step
    return pd.DataFrame(
        {
            "preset": run.made["preset"],
            "seed": run.seed,
            "symbol": names,
            "loss": [sum(one[name] for one in by_step.values()) / len(by_step) for name in names],
            "fell": [min(below[name], default=None) for name in names],
            "seconds": round(run.seconds, 1),
            "device": str(run.take_step.device),
        }
    )


def results(runs: Iterable[Run], folder: Path) -> pd.DataFrame:
    """Return the results of those runs that are finished, as ``read_runs`` does; empty if none is.

    Raises:
        BadInput: a result is damaged, or belongs to another run.
    """
    tables = []
    for path, run in ((place(folder, run) / RESULT, run) for run in runs):
        if path.exists():
            tables.append(read_runs(path))
            if {*zip(tables[-1]["preset"], tables[-1]["seed"], strict=True)} != {run}:
                raise BadInput(f"{path}: belongs to another run than {run}; remove its folder to make it again")
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*COLUMNS])


def read_runs(path: Path | str) -> pd.DataFrame:
    """Return a table of runs, with one row for every run and symbol; lines that begin with # are ignored.

    Columns:
        ``preset``, ``seed``, ``symbol``;
        ``loss``: the loss on fresh examples, averaged over the last 100 steps;
        ``fell``: the first logged step with a training loss below 0.5; NaN if there is none;
        ``seconds``, ``device``: the duration and the place of the training.

    Raises:
        BadInput: the table is missing or damaged.
    """
    path = to_path(path)
    text = read_text(path, "a table of runs")
    try:
        empty = {"fell": [""]}  # elsewhere nothing may be missing
        runs = pd.read_csv(StringIO(text), comment="#", dtype=COLUMNS, keep_default_na=False, na_values=empty)
        runs = runs[[*COLUMNS]]
        by_run = runs.groupby(["preset", "seed"], sort=False)
        whole = all((*rows["symbol"],) == preset(str(name)).task.loss_components for (name, _), rows in by_run)
        steps = runs["fell"].dropna()
        sound = runs["loss"].between(0, float("inf"), inclusive="left") & (runs["seconds"] >= 0) & (runs["seed"] >= 0)
        if not whole or runs.empty or not sound.all() or not (steps.between(1, MOST_STEPS) & (steps % 1 == 0)).all():
            raise ValueError("a symbol is missing or given twice, or a number is out of range")
    except (ValueError, KeyError, OverflowError) as error:  # BadInput is a ValueError
        raise BadInput(f"{path}: not a table of runs ({reason_of(error)}); columns: {', '.join(COLUMNS)}") from error
    return runs

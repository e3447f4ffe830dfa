"""Training a preset: the loop, its log and checkpoints, and resuming.

Training is deterministic. The training set, the order of its examples and the initial weights follow from the seed, and
the learning rate follows from the step. The state is therefore the weights, the moments and the step. A run that is
resumed on the same device with the same number of threads continues bit for bit.
"""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from circuits.errors import BadInput
from circuits.utils.files import append_line, check_writable, read_text, to_path, write_atomically
from circuits.utils.lazy import torch
from retrieval_interp.locks import claimed
from retrieval_interp.models.checkpoints import load_tensors, most_numbers, save_tensors
from retrieval_interp.models.library import Loaded, load
from retrieval_interp.models.model_dir import (
    CONFIG,
    LOCK,
    LOG,
    STATE,
    WEIGHTS,
    architecture_from,
    checkpoint_path,
    config_json,
    read_config,
    task_from,
)
from retrieval_interp.models.presets import Preset, Recipe, preset
from retrieval_interp.models.provenance import versions
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.registry import describe, task_of
from retrieval_interp.training.training_step import TrainingStep, choose_device, learning_rate, train_steps

LOG_EVERY, VALIDATE_EVERY, VALIDATION_EXAMPLES = 20, 100, 512


class TrainingStopped(Exception):
    """The run was interrupted; its state has been saved."""


class TrainingDiverged(Exception):
    """The loss or a weight became NaN or infinite; the last saved state is intact."""


class TrainingRun:
    """A training run in a folder: its model, its current step, and its log."""

    def __init__(self, folder: Path, device: torch.device, compiled: bool) -> None:
        """Continue the run in ``folder`` from its last saved state, or start it at step 0.

        Raises:
            BadInput: there is no run, or its state is damaged or missing.
        """
        from retrieval_interp.models.build import build

        config = config_of_run(folder)
        self.folder, self.made = folder, config["made"]
        self.task = task_from(config, folder / CONFIG)
        self.recipe, self.seed = recipe_from(config, folder / CONFIG)
        cfg = architecture_from(config, self.task, folder / CONFIG)
        if self.recipe.initializer_range is not None:
            cfg.initializer_range = self.recipe.initializer_range
        self.model = build(self.task, cfg, self.seed).to(device, print_details=False)
        self.take_step = TrainingStep(self.model, self.task, self.recipe)
        self.step = self.saved_step = 0
        self.seconds = 0.0
        self.running = torch.zeros(
            len(self.task.trained_components), dtype=torch.float64
        )  # sums since the last log line
        if (folder / STATE).exists():
            self._load_state()
        if (folder / LOG).exists():
            self._cut_log()
        if compiled:
            self.take_step.compile()
        self.steps = train_steps(self.take_step, self.seed, self.step)
        self.validation = self.task.examples(VALIDATION_EXAMPLES, self.seed).to(device)

    def advance(self) -> dict[str, Any] | None:
        """Take one step, and return the log record if one is due.

        Raises:
            TrainingDiverged: the loss is NaN or infinite; nothing is saved.
        """
        started = time.perf_counter()
        self.step, losses, _ = next(self.steps)
        self.running += losses.cpu()
        record = self._record() if self.step % LOG_EVERY == 0 or self.step == self.recipe.steps else None
        self.seconds += time.perf_counter() - started
        if self.step % self.recipe.checkpoint_every == 0 or self.step == self.recipe.steps:
            # The state is written last: a run that is resumed from it has its checkpoint.
            self._check(self.running, *self.model.parameters())
            checkpoint = checkpoint_path(self.folder, self.step)
            save_tensors(checkpoint, self.model.state_dict(), {"step": str(self.step)})
            self.save()
        return record

    def save(self) -> None:
        """Save the state, so that the run can be resumed from this step.

        Raises:
            TrainingDiverged: the loss or a weight is NaN or infinite; nothing is saved.
        """
        self._check(self.running, *self.model.parameters())
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.take_step.optimizer.state.get(parameter, {}).items():
                tensors[f"{key}.{name}"] = value
        tensors["running"] = self.running
        save_tensors(self.folder / STATE, tensors, {"step": str(self.step), "seconds": f"{self.seconds:.1f}"})
        self.saved_step = self.step

    def finish(self) -> None:
        """Write the final weights, and the training time into the config."""
        made = {**self.made, "training_seconds": round(self.seconds), "device": str(self.take_step.device)}
        made["precision"] = "bfloat16" if self.take_step.autocast else "float32"
        save_tensors(self.folder / WEIGHTS, self.model.state_dict())
        write_atomically(self.folder / CONFIG, config_json(self.task, self.model.cfg, made))

    def _record(self) -> dict[str, Any]:
        """Write a log record: the training losses since the last one, and at some steps validation losses."""
        self._check(self.running)
        since = self.step % LOG_EVERY or LOG_EVERY
        record: dict[str, Any] = {"step": self.step, **logged(self.task.trained_components, self.running / since)}
        if self.step % VALIDATE_EVERY == 0 or self.step == self.recipe.steps:
            record["validation"] = logged(self.task.loss_components, self.take_step.validate(self.validation))
        record["lr"] = short(learning_rate(self.recipe, self.step - 1))
        self.running.zero_()
        append_line(self.folder / LOG, json.dumps(record))
        return record

    def _check(self, *numbers: torch.Tensor) -> None:
        if all(tensor.isfinite().all() for tensor in numbers):
            return
        where = f"the state of step {self.saved_step} is intact" if self.saved_step else "no checkpoint was written yet"
        what = f"the loss or a weight became NaN or infinite by step {self.step}"
        raise TrainingDiverged(f"{self.folder}: {what}; {where}")

    def _load_state(self) -> None:
        path = self.folder / STATE
        tensors, metadata = load_tensors(path, 3 * most_numbers(self.model.cfg))  # weights and two moments
        bad = [name for name, t in tensors.items() if not name.endswith("attn.IGNORE") and not t.isfinite().all()]
        if bad:
            raise BadInput(f"{path}: {bad[0]} holds NaN or infinite numbers")
        try:
            self.step, self.seconds = int(metadata["step"]), float(metadata["seconds"])
            if not 0 <= self.step <= self.recipe.steps or not math.isfinite(self.seconds):
                raise ValueError(f"step {self.step} of {self.recipe.steps}")
            if tensors["running"].shape != self.running.shape:
                raise ValueError("wrong shape of the running losses")
            self.running.copy_(tensors["running"])
            self.saved_step = self.step
            self.model.load_state_dict({name: tensors[f"model.{name}"] for name in self.model.state_dict()})
            for name, parameter in self.model.named_parameters():
                if self.step and parameter.requires_grad:
                    keys = ("step", "exp_avg", "exp_avg_sq")
                    state = {key: tensors[f"{key}.{name}"] for key in keys}
                    if any(state[key].shape != parameter.shape for key in keys[1:]) or state["step"].ndim:
                        raise ValueError(f"wrong shape of the moments of {name}")
                    # A fused optimiser keeps its step count on the parameter's device.
                    self.take_step.optimizer.state[parameter] = {k: v.to(parameter.device) for k, v in state.items()}
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadInput(f"{path}: not the state of this run ({error})") from error

    def _cut_log(self) -> None:
        """Remove all lines after the saved step, including an incomplete last line.

        Raises:
            BadInput: a line is damaged, or there is no state though the log goes beyond the step of the first one.
        """
        path, kept, last = self.folder / LOG, [], 0
        lines = read_text(path, "the log of a run").splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                step = json.loads(line)["step"]
                if step <= self.step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if number == len(lines):
                    break
                raise BadInput(f"{path}, line {number}: no log record") from error
            last = step
        if not (self.folder / STATE).exists() and last > self.recipe.checkpoint_every:
            raise BadInput(f"{path}: goes to step {last}, but {STATE} is missing, so the training cannot be resumed")
        write_atomically(path, "".join(kept))


def logged(names: Sequence[str], losses: torch.Tensor) -> dict[str, Any]:
    """Return the mean of losses ``[component]`` and each of them by name, for the log."""
    parts = {name: short(loss) for name, loss in zip(names, losses.tolist(), strict=True)}
    return {"loss": short(losses.mean().item()), "components": parts}


def short(number: float) -> float:
    """Return a number with six significant digits, which is less than what single precision holds."""
    return float(f"{number:.6g}")


def start_run(folder: Path, name: str, /, *, seed: int | None = None, **changes: Any) -> None:
    """Write the config of a new run; ``TrainingRun(folder, ...)`` then starts it.

    Args:
        folder: the folder of the run, new or without a run.
        name: the name of a preset.
        seed: the seed of the weights and the data; the default is the preset's.
        changes: changed fields of the task, the architecture or the recipe.

    Raises:
        BadInput: there is no such preset or field, or the folder already holds a run or cannot be written.
    """
    check_start(folder, name, seed, **changes)
    with alone_in(folder):
        chosen, seed = check_start(folder, name, seed, **changes)  # another process may have started a run meanwhile
        write_atomically(folder / CONFIG, run_config(name, chosen, seed))


def check_start(folder: Path, name: str, seed: int | None, /, **changes: Any) -> tuple[Preset, int]:
    """Check that a new run can start, as ``start_run`` does, and return its preset and seed.

    Raises:
        BadInput: as ``start_run``.
    """
    if (folder / CONFIG).exists():
        raise BadInput(f"{folder}: already holds a run; continue it with --resume or choose another folder")
    chosen = preset(name, **changes)
    seed = chosen.seed if seed is None else seed
    RngStream.TRAINING.generator(seed)  # raises BadInput for a bad seed
    check_writable(folder / CONFIG)
    return chosen, seed


def run_config(name: str, chosen: Preset, seed: int) -> str:
    """Return the config of a run, as JSON."""
    made = {"preset": name, "seed": seed, "recipe": dataclasses.asdict(chosen.recipe), "versions": versions()}
    return config_json(chosen.task, chosen.config, made)


def train_command(name: str, config: dict[str, Any], path: Path) -> str:
    """Return the command that repeats a run; settings that differ from the preset become options."""
    recipe, seed = recipe_from(config, path)
    own, task = preset(name), describe(task_of(config["task"]))
    now = {**config["architecture"], **task, **dataclasses.asdict(recipe)}
    before = {**dataclasses.asdict(own.architecture), **describe(own.task), **dataclasses.asdict(own.recipe)}
    now["mlp"] = not now.get("attn_only", False)
    changed = {field: now[field] for field, value in before.items() if now[field] != value and field != "steps"}
    words = {None: "none", True: "true", False: "false"}  # as --set reads them
    settings = [
        f"--set {field}={words[value] if value is None or isinstance(value, bool) else value}"
        for field, value in changed.items()
    ]
    return " ".join(["retrieval-interp train", name, f"--seed {seed} --steps {recipe.steps}", *settings])


def config_of_run(folder: Path) -> dict[str, Any]:
    """Return the config of a run that can be started or resumed.

    Raises:
        BadInput: the folder holds no run, or a finished model without its training state.
    """
    config = read_config(folder)
    recipe_from(config, folder / CONFIG)
    if (folder / WEIGHTS).exists() and not (folder / STATE).exists():
        raise BadInput(f"{folder}: holds a model without {STATE}, so its training cannot be resumed")
    return config


def recipe_from(config: dict[str, Any], path: Path) -> tuple[Recipe, int]:
    """Return the recipe and the seed in the config of a run."""
    try:
        made = config["made"]
        seed = made["seed"]
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise TypeError(f"seed is {seed!r}; expected a whole number")
        RngStream.TRAINING.generator(seed)
        return Recipe(**made["recipe"]), seed
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path}: holds no training recipe ({error}); only runs of this toolkit can be resumed"
        ) from error


def train(
    name: str,
    folder: Path | str,
    *,
    seed: int | None = None,
    device: str = "auto",
    compiled: bool = True,
    **changes: Any,
) -> Loaded:
    """Train a preset in a folder, and load the model. An unfinished run in the folder is resumed.

    ``train("tiny", "runs/mine", n_layers=3, steps=500)``

    Args:
        name: the name of a preset.
        folder: the folder of the run.
        seed: the seed of the weights and the data; the default is the preset's.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        compiled: whether to use torch.compile, if it works on this machine.
        changes: changed fields of the task, the architecture or the recipe.

    Returns:
        ``model, task, circuit``, as ``load`` does.

    Raises:
        BadInput: there is no such preset or field, or the folder holds another run.
        TrainingStopped: the run was interrupted; its state has been saved.
        TrainingDiverged: the loss or a weight became NaN or infinite.
    """
    folder = to_path(folder)
    if not (folder / CONFIG).exists():
        start_run(folder, name, seed=seed, **changes)
    chosen = preset(name, **changes)
    there, asked = read_config(folder), json.loads(run_config(name, chosen, chosen.seed if seed is None else seed))
    made = {**there.get("made", {})}
    made["recipe"] = dataclasses.asdict(recipe_from(there, folder / CONFIG)[0])  # fields newer than the run included
    for field, own in {**asked["made"], "recipe": dataclasses.asdict(chosen.recipe)}.items():
        if field != "versions" and made.get(field) != own:
            raise BadInput(f"{folder}: holds a run with another {field}; choose another folder")
    if any(there[part] != asked[part] for part in ("task", "architecture")):
        raise BadInput(f"{folder}: holds a run with another task or architecture; choose another folder")
    if not (folder / WEIGHTS).exists():
        train_run(folder, device, compiled)
    return load(folder)


def train_run(folder: Path, device: str = "auto", compiled: bool = True) -> None:
    """Train the run in ``folder`` to its end, with a progress bar on standard error.

    Raises:
        TrainingStopped: the run was interrupted (Ctrl-C or SIGTERM); its state has been saved.
        TrainingDiverged: the loss or a weight became NaN or infinite.
        BadInput: there is no run, it is damaged, or another process trains it.
    """
    config_of_run(folder)  # fails before the lock file is written
    with alone_in(folder):
        console = Console(stderr=True)
        with console.status("preparing the run (compiling takes up to a minute)"):
            run = TrainingRun(folder, choose_device(device), compiled)
        columns = (
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("[dim]{task.fields[losses]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console) as progress, interruptions() as interrupted:
            bar = progress.add_task("", total=run.recipe.steps, completed=run.step, losses="")
            while run.step < run.recipe.steps:
                record = run.advance()
                progress.update(bar, completed=run.step)
                if record is not None:
                    parts = " ".join(f"{name} {value:.3f}" for name, value in record["components"].items())
                    progress.update(bar, losses=f"loss {record['loss']:.4f}  {parts}")
                if interrupted:
                    run.save()
                    raise TrainingStopped(f"stopped at step {run.step} of {run.recipe.steps}; the state is saved")
        run.finish()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the run in ``folder`` against other processes until the block ends.

    Raises:
        BadInput: another process trains the run, or the folder cannot be written.
    """
    with claimed(folder / LOCK) as mine:
        if not mine:
            raise BadInput(f"{folder}: another process trains this run; wait for it, or choose another folder")
        yield


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that the loop can save the state before it stops."""
    seen: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def note(number: int, _: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

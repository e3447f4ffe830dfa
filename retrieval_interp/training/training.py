"""Training a preset: the loop, its log and checkpoints, and resuming.

Training is deterministic. The training set, the order of its examples and the initial weights follow from the seed, and
the learning rate follows from the step. The state is therefore the weights, the moments and the step. A run that is
resumed on the same device with the same number of threads continues bit for bit.
"""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from tqdm.auto import tqdm

from circuits.errors import BadInput
from circuits.utils.files import check_writable, read_text, to_path, write_atomically
from circuits.utils.lazy import Deferred, torch
from retrieval_interp.locks import claimed
from retrieval_interp.logs import append_line
from retrieval_interp.models import model_dir
from retrieval_interp.models.checkpoints import CONSTANTS, load_tensors, most_numbers, save_tensors
from retrieval_interp.models.library import Loaded, load
from retrieval_interp.models.model_dir import CONFIG, LOCK, LOG, STATE, WEIGHTS, checkpoint_path, read_config
from retrieval_interp.models.presets import TRAINED, Preset, Recipe, preset
from retrieval_interp.models.provenance import versions
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.registry import describe
from retrieval_interp.training.training_step import TrainingStep, choose_device, learning_rate, train_steps

building = Deferred("retrieval_interp.models.build")
LOG_EVERY, VALIDATE_EVERY, VALIDATION_EXAMPLES = 20, 100, 512


class TrainingStopped(Exception):
    """The run was interrupted; its state has been saved."""


class TrainingDiverged(Exception):
    """The loss or a weight became NaN or infinite; the last saved state is intact."""


class TrainingRun:
    """A training run in a folder: its model, its current step, and its log."""

    def __init__(self, folder: Path, device: torch.device, compiled: bool) -> None:
        """Continue the run in ``folder`` from its saved state, or start it at step 0; BadInput if it is damaged."""
        config = config_of_run(folder)
        self.folder, self.made = folder, config["made"]
        self.task = model_dir.task_from(config, folder / CONFIG)
        self.recipe, self.seed = recipe_from(config, folder / CONFIG)
        cfg = model_dir.architecture_from(config, self.task, folder / CONFIG)
        if self.recipe.initializer_range is not None:
            cfg.initializer_range = self.recipe.initializer_range
        self.model = building.build(self.task, cfg, self.seed).to(device, print_details=False)
        self.take_step = TrainingStep(self.model, self.task, self.recipe)
        self.step = self.saved_step = 0
        self.seconds = 0.0
        self.running = torch.zeros(len(self.task.trained_components), dtype=torch.float64)  # since the last log line
        if (folder / STATE).exists():
            self._load_state()
        if (folder / LOG).exists():
            self._cut_log()
        if compiled:
            self.take_step.compile()
        self.steps = train_steps(self.take_step, self.seed, self.step)
        self.validation = self.task.examples(VALIDATION_EXAMPLES, self.seed).to(device)

    def advance(self) -> dict[str, Any] | None:
        """Take one step, and return the log record if one is due; TrainingDiverged if the loss is NaN or infinite."""
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
        """Save the state, so that the run can be resumed from this step, unless a loss or weight is NaN or infinite."""
        self._check(self.running, *self.model.parameters())
        save_tensors(self.folder / STATE, self._state(), {"step": str(self.step), "seconds": f"{self.seconds:.1f}"})
        self.saved_step = self.step

    def finish(self) -> None:
        """Write the final weights, and the training time into the config."""
        made = {**self.made, "training_seconds": round(self.seconds), "device": str(self.take_step.device)}
        made["precision"] = "bfloat16" if self.take_step.autocast else "float32"
        save_tensors(self.folder / WEIGHTS, self.model.state_dict())
        write_atomically(self.folder / CONFIG, model_dir.config_json(self.task, self.model.cfg, made))

    def _state(self) -> dict[str, torch.Tensor]:
        """Return the tensors from which a run is resumed: the weights, Adam's moments, and sums of losses."""
        tensors = {f"model.{name}": t for name, t in self.model.state_dict().items() if not name.endswith(CONSTANTS)}
        for name, weight in self.model.named_parameters():
            tensors |= {f"{key}.{name}": t for key, t in self.take_step.optimizer.state.get(weight, {}).items()}
        return {**tensors, "running": self.running}

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
        try:
            self.step, self.seconds = int(metadata["step"]), float(metadata["seconds"])
            if not 0 <= self.step <= self.recipe.steps or not math.isfinite(self.seconds):
                raise ValueError(f"step {self.step} of {self.recipe.steps}")
            self.saved_step = self.step
            if self.step:
                self.take_step.start_moments()
            for name, tensor in self._state().items():
                if tensors[name].shape != tensor.shape:
                    raise ValueError(f"wrong shape of {name}")
                if not tensors[name].isfinite().all():
                    raise ValueError(f"{name} holds NaN or infinite numbers")
                tensor.detach().copy_(tensors[name])
        except (KeyError, ValueError, RuntimeError) as error:
            raise BadInput(f"{path}: not the state of this run ({error})") from error

    def _cut_log(self) -> None:
        """Remove all lines after the saved step, including an incomplete last line."""
        path, kept, last = self.folder / LOG, "", 0
        lines = read_text(path, "the log of a run").splitlines()
        for number, line in enumerate(lines, start=1):
            try:
                last = int(json.loads(line)["step"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if number < len(lines):
                    raise BadInput(f"{path}, line {number}: no log record") from error
            else:
                kept += f"{line}\n" if last <= self.step else ""
        if not (self.folder / STATE).exists() and last > self.recipe.checkpoint_every:
            raise BadInput(f"{path}: goes to step {last}, but {STATE} is missing, so the training cannot be resumed")
        write_atomically(path, kept)


def logged(names: Sequence[str], losses: torch.Tensor) -> dict[str, Any]:
    """Return the mean of losses ``[component]`` and each of them by name, for the log."""
    parts = {name: short(loss) for name, loss in zip(names, losses.tolist(), strict=True)}
    return {"loss": short(losses.mean().item()), "components": parts}


def short(number: float) -> float:
    """Return a number with six significant digits, which is less than what single precision holds."""
    return float(f"{number:.6g}")


def start_run(folder: Path, name: str, /, *, seed: int = 0, device: str = "auto", **changes: Any) -> None:
    """Write the config of a new run of a preset, with changed fields; ``TrainingRun(folder, ...)`` then starts it.

    Raises:
        BadInput: there is no such preset, field or device, or the folder already holds a run or cannot be written.
    """
    chosen = preset(name, **changes)
    RngStream.TRAINING.generator(seed)  # raises BadInput for a bad seed
    check_writable(folder / CONFIG)
    with alone_in(folder):
        if (folder / CONFIG).exists():
            raise BadInput(f"{folder}: already holds a run; continue it with --resume or choose another folder")
        choose_device(device)
        write_atomically(folder / CONFIG, run_config(name, chosen, seed))


def run_config(name: str, chosen: Preset, seed: int) -> str:
    """Return the config of a run, as JSON."""
    made = {"preset": name, "seed": seed, "recipe": asdict(chosen.recipe), "versions": versions()}
    return model_dir.config_json(chosen.task, chosen.config, made)


def train_command(config: dict[str, Any], path: Path) -> str:
    """Return the command that repeats a run, from its config; settings that differ from the preset become options."""
    recipe, seed = recipe_from(config, path)
    name, shape = str(config["made"].get("preset")), model_dir.shape_from(config, path)
    name = TRAINED.get(name, name)
    before = asdict(preset(name))
    now = {"architecture": {**asdict(shape), "mlp": not shape.attn_only}, "recipe": asdict(recipe)}
    now["task"] = describe(model_dir.task_from(config, path))
    command = f"retrieval-interp train {name} --seed {seed} --steps {recipe.steps}"
    for field, value in (one for part in ("architecture", "task", "recipe") for one in now[part].items()):
        if field != "steps" and any(value != part[field] for part in before.values() if field in part):
            said = "none" if value is None else json.dumps(value, separators=(",", ":")).strip('"')
            command += f" --set {field}={said}"
    return command


def config_of_run(folder: Path) -> dict[str, Any]:
    """Return the config of a run that can be started or resumed; BadInput if there is none, or its state is missing."""
    config = read_config(folder)
    recipe_from(config, folder / CONFIG)
    if (folder / WEIGHTS).exists() and not (folder / STATE).exists():
        raise BadInput(f"{folder}: holds a model without {STATE}, so its training cannot be resumed")
    return config


def recipe_from(config: dict[str, Any], path: Path) -> tuple[Recipe, int]:
    """Return the recipe and the seed in the config of a run."""
    try:
        made = config["made"]
        RngStream.TRAINING.generator(made["seed"])
        return Recipe(**made["recipe"]), made["seed"]
    except (KeyError, TypeError, ValueError) as error:
        what = f"holds no training recipe ({error}); only runs of this toolkit can be resumed"
        raise BadInput(f"{path}: {what}") from error


def train(
    name: str,
    folder: Path | str,
    *,
    seed: int = 0,
    device: str = "auto",
    compiled: bool = True,
    **changes: Any,
) -> Loaded:
    """Train a preset in a folder, and load the model. An unfinished run in the folder is resumed.

    ``train("tiny", "runs/mine", n_layers=3, steps=500)``

    Args:
        name: the name of a preset.
        folder: the folder of the run.
        seed: the seed of the weights and the data.
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
        start_run(folder, name, seed=seed, device=device, **changes)
    asked = json.loads(run_config(name, preset(name, **changes), seed))
    there = read_config(folder)
    for config in (there, asked):
        config["made"] = {part: config["made"].get(part) for part in ("preset", "seed", "recipe")}
    if there != asked:
        raise BadInput(f"{folder}: holds another run than {name} with these settings; choose another folder")
    if not (folder / WEIGHTS).exists():
        train_run(folder, device, compiled)
    return load(folder)


def train_run(folder: Path, device: str = "auto", compiled: bool = True) -> None:
    """Train the run in ``folder`` to its end, with a progress bar on standard error; raises as ``train`` does."""
    config_of_run(folder)  # fails before the lock file is written
    with alone_in(folder):
        with Console(stderr=True).status("preparing the run (compiling takes up to a minute)"):
            run = TrainingRun(folder, choose_device(device), compiled)
        last = run.recipe.steps
        bar = tqdm(total=last, initial=run.step, desc="training", unit="step", disable=None)  # in a terminal only
        with bar, interruptions() as interrupted:
            while run.step < last:
                record = run.advance()
                bar.update()
                if record is not None:
                    bar.set_postfix(loss=record["loss"], **record["components"], refresh=False)
                if interrupted:
                    run.save()
                    raise TrainingStopped(f"stopped at step {run.step} of {last}; the state is saved")
        run.finish()


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Lock the run in ``folder`` against other processes until the block ends; BadInput if one trains the run."""
    with claimed(folder / LOCK) as mine:
        if not mine:
            raise BadInput(f"{folder}: another process trains this run; wait for it, or choose another folder")
        yield


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM, so that the loop can save the state before it stops."""
    seen: list[int] = []
    heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, lambda number, _: seen.append(number)) for number in heard}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

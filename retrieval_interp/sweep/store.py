"""The runs of sweeps, in a folder: each is there whole or not at all, and nobody makes one twice.

FOLDER/store.json                   which version's runs these are
FOLDER/laptop_ic_3/seed-0002/       config.json, log.jsonl, result.json, and model.safetensors if weights are kept
FOLDER/failures.jsonl               what went wrong
FOLDER/.partial/                    runs that are being written
FOLDER/.locks/                      which runs are being made now; a lock ends with the process that holds it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from circuits.errors import BadInput
from circuits.utils.files import append_line, read_text, write_atomically
from circuits.utils.lazy import torch
from retrieval_interp.models.checkpoints import save_tensors
from retrieval_interp.models.model_dir import CONFIG, LOG, WEIGHTS
from retrieval_interp.models.presets import PRESETS, preset
from retrieval_interp.records import record_of
from retrieval_interp.sweep.plan import Run
from retrieval_interp.training.curves import MOST_STEPS
from retrieval_interp.training.training import run_config

STORE, RESULT, FAILURES = "store.json", "result.json", "failures.jsonl"
LOCKS, PARTIAL = ".locks", ".partial"
FORMAT = 1
LEARNED = 0.5  # a partial loss below it (paper, section 7.2)


@dataclass(frozen=True)
class Result:
    """What one model learned.

    Attributes:
        preset: what was trained.
        seed: of weights and data.
        losses: the partial losses on fresh examples, by symbol, averaged over the last 100 steps.
        fell: for every symbol the step by which its training loss was below 0.5 first; None where it never was.
        seconds: its share of the time that the training took.
        device: on which.
    """

    preset: str
    seed: int
    losses: dict[str, float]
    fell: dict[str, int | None]
    seconds: float
    device: str

    def __post_init__(self) -> None:
        steps = [step for step in self.fell.values() if step is not None]
        if min(*self.losses.values(), *steps, self.seconds, 0) < 0 or max(*steps, 0, 0) > MOST_STEPS:
            raise ValueError("a loss, a step or a time is below 0, or a step too large")

    @property
    def run(self) -> Run:
        """What was trained, with which seed."""
        return Run(self.preset, self.seed)

    @property
    def loss(self) -> float:
        """The mean of the partial losses."""
        return sum(self.losses.values()) / len(self.losses)


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        result: what it learned.
        log: its training log, as lines of JSON.
        weights: its state, or None where weights are not kept.
    """

    result: Result
    log: str
    weights: Mapping[str, torch.Tensor] | None


@dataclass(frozen=True)
class Format:
    """Which version's runs a store holds."""

    format: int


class Store:
    """A folder of runs."""

    def __init__(self, folder: Path) -> None:
        """Open a store, or begin one.

        Raises:
            BadInput: the folder holds something else, links that lead out of it, or the store of another version, or
                cannot be written.
        """
        self.folder = folder
        marker = folder / STORE
        if not marker.exists():
            strangers = [path for path in folder.iterdir() if STORE not in path.name] if folder.is_dir() else []
            if strangers and not marker.exists():  # another sweep may just have begun the same store
                raise BadInput(f"{folder}: holds something else than a sweep's runs; choose another folder")
            write_atomically(marker, json.dumps(asdict(Format(FORMAT))) + "\n")
        try:
            form = record_of(Format, read_text(marker, "what a store of runs is")).format
        except ValueError as error:
            raise BadInput(f'{marker}: damaged ({error}); expected {{"format": {FORMAT}}}') from error
        if form != FORMAT:
            raise BadInput(f"{marker}: format is {form}; this version reads {FORMAT}")
        # Folders are moved and removed here, which must not happen to those that somebody else's store leads to.
        for path in (path for level in ("*", "*/*") for path in folder.glob(level)):
            if path.is_symlink():
                raise BadInput(f"{path}: is a link; everything in a store lies in its own folder")

    def path(self, run: Run) -> Path:
        """Where a run lies, if it is there."""
        return self.folder / run.preset / f"seed-{run.seed:04d}"

    def has(self, run: Run, file: str = "") -> bool:
        """Whether a run is there, with this file in it if one is named."""
        return (self.path(run) / file).exists()

    @property
    def runs(self) -> tuple[Run, ...]:
        """All that are there.

        Raises:
            BadInput: something in the folder is no run.
        """
        found = []
        for path in sorted(self.folder.glob("[!.]*/*/")):
            name, seed = path.parent.name, path.name.removeprefix("seed-")
            if not seed.isdecimal() or self.path(Run(name, int(seed))) != path:
                raise BadInput(f"{path}: is no run; expected something like seed-0000")
            if name not in PRESETS:
                raise BadInput(f"{path.parent}: is of no preset; `retrieval-interp models presets` lists them")
            found.append(Run(name, int(seed)))
        return tuple(found)

    def result(self, run: Run) -> Result:
        """What a run learned.

        Raises:
            BadInput: it is damaged, or was made by other settings than its preset has now.
        """
        path, parts = self.path(run), preset(run.preset).task.loss_components
        try:
            made = json.loads(read_text(path / CONFIG, "the config of a run"))
            now = json.loads(run_config(run.preset, preset(run.preset), run.seed))
            for document in (made, now):
                del document["made"]["versions"]
            result = record_of(Result, read_text(path / RESULT, "the result of a run"))
            whole = result.run == run and tuple(result.losses) == tuple(result.fell) == parts
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise BadInput(f"{path}: a damaged run ({error}); remove its folder to make it again") from error
        if made != now:
            raise BadInput(f"{path}: was made by other settings than {run.preset} has now; choose another folder")
        if not whole:
            raise BadInput(f"{path / RESULT}: is not of {run}; remove its folder to make it again")
        return result

    def results(self, runs: Sequence[Run]) -> list[Result]:
        """What those of the runs learned that are there.

        Raises:
            BadInput: as ``result``.
        """
        return [self.result(run) for run in runs if self.has(run)]

    @contextmanager
    def claimed(self, run: Run, file: str = "") -> Iterator[bool]:
        """Whether a run is missing, or lacks this file, and nobody else has it; nobody else gets it until this ends."""
        lock = FileLock(self.folder / LOCKS / f"{run.preset}-{run.seed}", timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield not self.has(run, file)
        finally:
            lock.release()

    def add(self, trained: Trained) -> None:
        """Keep a finished run, which must be claimed: all of it, or nothing.

        Raises:
            BadInput: it cannot be written; nothing of it is there then.
        """
        run, place = trained.result.run, self.path(trained.result.run)
        partial = self.folder / PARTIAL / f"{run.preset}-{run.seed:04d}"
        shutil.rmtree(partial, ignore_errors=True)  # of a sweep that was killed
        try:
            write_atomically(partial / CONFIG, run_config(run.preset, preset(run.preset), run.seed))
            write_atomically(partial / LOG, trained.log)
            write_atomically(partial / RESULT, json.dumps(asdict(trained.result)) + "\n")
            if trained.weights is not None:
                save_tensors(partial / WEIGHTS, trained.weights)
            place.parent.mkdir(exist_ok=True)
            partial.rename(place)
        except OSError as error:
            raise BadInput(f"{place}: cannot be written ({error.strerror or error})") from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def failed(self, run: Run, reason: str) -> None:
        """Write down that a run failed, and why."""
        append_line(self.folder / FAILURES, json.dumps({**asdict(run), "reason": reason}))

"""The store: a folder of runs. Each run is there completely or not at all, and no run is made twice.

FOLDER/store.json                   the format of the store
FOLDER/laptop_ic_3/seed-0002/       config.json, log.jsonl, result.json, and model.safetensors if weights are kept
FOLDER/failures.jsonl               the failures
FOLDER/.partial/                    runs that are being written
FOLDER/.locks/                      locks of the runs that are being made; a lock ends with its process
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.files import append_line, read_text, write_atomically
from circuits.utils.lazy import torch
from retrieval_interp.locks import LOCKS, claimed
from retrieval_interp.models.checkpoints import save_tensors
from retrieval_interp.models.model_dir import CONFIG, LOG, WEIGHTS
from retrieval_interp.models.presets import preset
from retrieval_interp.records import record_of
from retrieval_interp.sweep.plan import Run
from retrieval_interp.training.curves import MOST_STEPS
from retrieval_interp.training.training import run_config

STORE, RESULT, FAILURES = "store.json", "result.json", "failures.jsonl"
PARTIAL = ".partial"
FORMAT = 1
LEARNED = 0.5  # a symbol with a partial loss below it counts as learned (paper, section 7.2)


@dataclass(frozen=True)
class Result:
    """The result of training one model.

    Attributes:
        preset: the name of the preset.
        seed: the seed of the weights and the data.
        losses: the partial losses on fresh examples, by symbol, averaged over the last 100 steps.
        fell: for every symbol the first step with a training loss below 0.5; None if there is none.
        seconds: the duration of the training.
        device: the device.
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
            raise ValueError("a loss, a step or a time is below 0, or a step is too large")

    @property
    def run(self) -> Run:
        """The run: the preset and the seed."""
        return Run(self.preset, self.seed)

    @property
    def loss(self) -> float:
        """The mean of the partial losses."""
        return sum(self.losses.values()) / len(self.losses)


@dataclass(frozen=True)
class Trained:
    """A finished run.

    Attributes:
        result: the result.
        log: the training log, as lines of JSON.
        weights: the weights by name; None if they are not kept.
    """

    result: Result
    log: str
    weights: Mapping[str, torch.Tensor] | None


@dataclass(frozen=True)
class Format:
    """The format of a store."""

    format: int


class Store:
    """A folder of runs."""

    def __init__(self, folder: Path) -> None:
        """Open a store, or create one.

        Raises:
            BadInput: the folder holds something else, links, or a store of another version, or cannot be written.
        """
        self.folder = folder
        marker = folder / STORE
        if not marker.exists():
            others = [path for path in folder.iterdir() if STORE not in path.name] if folder.is_dir() else []
            if others and not marker.exists():  # another sweep may have created the store meanwhile
                raise BadInput(f"{folder}: holds other files than the runs of a sweep; choose another folder")
            write_atomically(marker, json.dumps(asdict(Format(FORMAT))) + "\n")
        try:
            form = record_of(Format, read_text(marker, "the format of a store")).format
        except ValueError as error:
            raise BadInput(f'{marker}: damaged ({error}); expected {{"format": {FORMAT}}}') from error
        if form != FORMAT:
            raise BadInput(f"{marker}: format is {form}; this version reads {FORMAT}")
        # Folders are moved and removed in a store; a link could lead to a folder outside of it.
        for path in (path for level in ("*", "*/*") for path in folder.glob(level)):
            if path.is_symlink():
                raise BadInput(f"{path}: is a link; a store may not hold links")

    def path(self, run: Run) -> Path:
        """Return the folder of a run, whether it exists or not."""
        return self.folder / run.preset / f"seed-{run.seed:04d}"

    def has(self, run: Run, file: str = "") -> bool:
        """Whether a run is there; with ``file``, whether the run has this file."""
        return (self.path(run) / file).exists()

    def result(self, run: Run) -> Result:
        """Return the result of a run.

        Raises:
            BadInput: the run is damaged, or was made with other settings than its preset has now.
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
            raise BadInput(f"{path}: was made with other settings than {run.preset} has now; choose another folder")
        if not whole:
            raise BadInput(f"{path / RESULT}: belongs to another run than {run}; remove its folder to make it again")
        return result

    def results(self, runs: Sequence[Run]) -> list[Result]:
        """Return the results of those runs that are there.

        Raises:
            BadInput: as ``result``.
        """
        return [self.result(run) for run in runs if self.has(run)]

    @contextmanager
    def claimed(self, run: Run) -> Iterator[bool]:
        """Claim a run until the block ends.

        Yields:
            whether the run is missing and no other process has claimed it.
        """
        with claimed(self.folder / LOCKS / f"{run.preset}-{run.seed}") as mine:
            yield mine and not self.has(run)

    def add(self, trained: Trained) -> None:
        """Save a finished run, which must be claimed, completely or not at all.

        Raises:
            BadInput: the run cannot be written; then no part of it is saved.
        """
        run, place = trained.result.run, self.path(trained.result.run)
        partial = self.folder / PARTIAL / f"{run.preset}-{run.seed:04d}"
        shutil.rmtree(partial, ignore_errors=True)  # may be left from a sweep that was killed
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
        """Record that a run failed, with the reason."""
        append_line(self.folder / FAILURES, json.dumps({**asdict(run), "reason": reason}))

"""A census of circuits: find the circuit of every model in a store, and save the findings beside the weights.

FOLDER/tiny/seed-0002/circuit.yaml  the circuit, if one was found; ``validate FOLDER/tiny/seed-0002`` uses it
FOLDER/tiny/seed-0002/census.json   the finding; a model without this file has not been examined yet
"""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import circuits
from circuits.checks.statements import STATEMENTS, Decision
from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit, save_circuit
from circuits.errors import BadInput, Unsolved
from circuits.flow.flow_check import ROLE_EXAMPLES
from circuits.losses.loss import allowed_loss, check_threshold
from circuits.mechanisms.one_hot import OneHot
from circuits.model.transformer import Transformer
from circuits.utils.files import read_text, write_atomically
from retrieval_interp.models.library import load
from retrieval_interp.models.model_dir import CIRCUIT, WEIGHTS
from retrieval_interp.models.presets import preset
from retrieval_interp.models.provenance import metadata
from retrieval_interp.records import record_of
from retrieval_interp.sweep.job import Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Store
from retrieval_interp.tasks.task import Task

FOUND = "census.json"
AGAIN = f"remove {FOUND} to examine the model again"
SELECT_ON, JUDGE_ON = 0, 1  # seeds of the examples for discovery and for validation, as in ``discover``
EXAMPLES, MOST = 1024, 16 * 1024  # examples for validation; at most MOST, where a decision is close


@dataclass(frozen=True)
class Finding:
    """The result of discovery and validation for one model.

    Attributes:
        preset: the preset of the model.
        seed: the seed of the model.
        threshold: the threshold; a loss below it counted as low.
        solved: whether the model solves its task; a model that does not has no circuit.
        found: whether a circuit was found.
        holds: whether the circuit holds on fresh examples (Appendix E, all steps).
        statements: the decision on each statement on fresh examples, ``holds``, ``fails`` or ``undecided``, by name;
            empty without a circuit, and in files of older versions.
        loss: the combined loss on fresh examples, of the circuit or of discovery's best attempt; None if the model does
            not solve its task.
        unablated: the unablated loss on the same examples; None if ``loss`` is None, and in files of older versions.
        explains: whether the loss is at most twice the unablated loss, plus a tenth of the threshold.
        content: the number of content heads.
        divided: the number of content heads that have paths on some chains only.
        only_one: whether the circuit is the only one, ``holds``, ``fails`` or ``undecided``; None if there is none, or
            if its loss is not clearly below the threshold, and in files of older versions.
        equivalents: the number of circuits that ``equivalence`` found; None if ``only_one`` is.
        shared: the number of paths that all of them have; None if ``only_one`` is.
        evaluations: the number of sequences that discovery ran.
        seconds: the duration of discovery, validation and the search for equivalent circuits.
        metadata: the hash of the model's weights, device, precision and versions; empty in files of older versions.
        circuit_sha256: the hash of the circuit beside the finding; None if none was found, and in files of older
            versions.
    """

    preset: str
    seed: int
    threshold: float
    solved: bool
    found: bool = False
    holds: bool = False
    statements: dict[str, str] = field(default_factory=dict)
    loss: float | None = None
    unablated: float | None = None
    explains: bool = False
    content: int = 0
    divided: int = 0
    only_one: str | None = None
    equivalents: int | None = None
    shared: int | None = None
    evaluations: int = 0
    seconds: float = 0.0
    metadata: dict[str, str] = field(default_factory=dict)
    circuit_sha256: str | None = None

    def __post_init__(self) -> None:
        decisions = {*self.statements.values()} | ({self.only_one} - {None})
        known = {*self.statements} <= {*STATEMENTS} and decisions <= {*get_args(Decision)}
        contradicts = (
            not known or self.holds > self.found or self.found > self.solved or (self.loss is None) == self.solved
        )
        told = {self.only_one is None, self.equivalents is None, self.shared is None}
        if contradicts or len(told) > 1 or (not self.found and (self.circuit_sha256, self.only_one) != (None, None)):
            raise ValueError("its fields contradict each other")
        numbers = (self.loss or 0, self.unablated or 0, self.content - self.divided, self.divided, self.evaluations)
        if min(*numbers, self.seconds) < 0:
            raise ValueError("a loss, a number or a time is below 0, or divided exceeds content")

    @property
    def run(self) -> Run:
        """The run that trained the model."""
        return Run(self.preset, self.seed)


@dataclass(frozen=True)
class Examined:
    """A finding and the circuit, or None if none was found."""

    finding: Finding
    circuit: Circuit | None


class Census:
    """The findings on the models of a store, in the folders of their runs.

    Attributes:
        runs: the runs that have been examined or can be.
        left_out: the number of other runs, which were kept without weights.
    """

    def __init__(self, store: Store, threshold: float) -> None:
        """Open the census of a store.

        Args:
            store: the store of a sweep.
            threshold: a loss below it counts as low.

        Raises:
            BadInput: the store holds no run with weights, or a run is damaged or was made with other settings, or the
                threshold is not a number above 0.
        """
        check_threshold(threshold)
        self.store, self.threshold = store, threshold
        results = store.results(store.runs)  # raises if a run is damaged or has other settings
        self.runs = tuple(result.run for result in results if examinable(store, result.run))
        self.left_out = len(results) - len(self.runs)
        if not self.runs:
            raise BadInput(f"{store.folder}: no run has weights; sweep with --weights")

    def has(self, run: Run) -> bool:
        """Whether a model has been examined."""
        return self.store.has(run, FOUND)

    def claimed(self, run: Run) -> AbstractContextManager[bool]:
        """Claim a model; yields whether it has not been examined and no other process has claimed it."""
        return self.store.claimed(run, FOUND)

    def add(self, examined: Examined) -> None:
        """Save a finding and its circuit.

        Raises:
            BadInput: a file cannot be written.
        """
        folder = self.store.path(examined.finding.run)
        if examined.circuit is not None:
            save_circuit(examined.circuit, folder / CIRCUIT)
        else:
            (folder / CIRCUIT).unlink(missing_ok=True)
        write_atomically(folder / FOUND, json.dumps(asdict(examined.finding)) + "\n")

    def failed(self, run: Run, reason: str) -> None:
        """Record that a model could not be examined, with the reason."""
        self.store.failed(run, reason)

    def examined(self) -> list[Examined]:
        """Return the findings on all models that have been examined.

        Raises:
            BadInput: a finding or a circuit is damaged, or was made with another threshold or of other weights.
        """
        return [self._examined(run) for run in self.runs if self.has(run)]

    def _examined(self, run: Run) -> Examined:
        path = self.store.path(run) / FOUND
        try:
            finding = record_of(Finding, read_text(path, "the finding of a census"))
        except ValueError as error:
            raise BadInput(f"{path}: damaged ({error}); {AGAIN}") from error
        if finding.run != run:
            raise BadInput(f"{path}: belongs to another run than {run}; {AGAIN}")
        if finding.threshold != self.threshold:
            raise BadInput(f"{path}: the threshold was {finding.threshold:g}, not {self.threshold:g}; {AGAIN}")
        there, known = self._weights_sha256(run), finding.metadata.get("weights_sha256")
        if None not in (there, known) and there != known:
            raise BadInput(f"{path}: belongs to other weights than those beside it; {AGAIN}")
        return Examined(finding, self._circuit(run, finding) if finding.found else None)

    def _weights_sha256(self, run: Run) -> str | None:
        """Return the hash of a run's weights; None if they were removed."""
        if not self.store.has(run, WEIGHTS):
            return None
        return str(metadata(str(run), load(self.store.path(run)).model)["weights_sha256"])

    def _circuit(self, run: Run, finding: Finding) -> Circuit:
        chosen, path = preset(run.preset), self.store.path(run) / CIRCUIT
        circuit = load_circuit(path)
        circuit.check(chosen.task.examples(1, 0).roles, chosen.architecture.n_layers, chosen.architecture.n_heads)
        if finding.circuit_sha256 not in (None, circuit.digest):
            raise BadInput(f"{path}: differs from the circuit that was found; {AGAIN}")
        if not circuit.paths:
            raise BadInput(f"{path}: the circuit has no path; {AGAIN}")
        return circuit


def examinable(store: Store, run: Run) -> bool:
    """Whether a run has weights, or has already been examined and no longer needs them."""
    return store.has(run, WEIGHTS) or store.has(run, FOUND)


def examine(job: Job, progress: Callable[[float], None], folder: Path, threshold: float) -> Examined:
    """Find the circuit of a job's model, and validate it on fresh examples.

    Args:
        job: the job of the run that trained the model.
        progress: is called with the finished share, 0 to 1.
        folder: the folder of the store.
        threshold: a loss below it counts as low.

    Raises:
        BadInput: the model cannot be loaded.
    """
    run = job.run
    started = time.perf_counter()
    model, task, _ = load(Store(folder).path(run))
    made = metadata(str(run), model)
    try:
        discovery = circuits.discover(model, task, seed=SELECT_ON, threshold=threshold, progress=progress)
    except Unsolved:
        return Examined(Finding(run.preset, run.seed, threshold, solved=False, metadata=made), None)
    report = circuits.validate(
        model, task, discovery.circuit, n_examples=EXAMPLES, seed=JUDGE_ON, threshold=threshold, max_examples=MOST
    )
    only = _equivalence(model, task, discovery.circuit, threshold) if discovery.found else {}
    roles = task.examples(ROLE_EXAMPLES, SELECT_ON).roles
    content = [discovery.circuit.heads[head] for head in discovery.heads.content]
    finding = Finding(
        run.preset,
        run.seed,
        threshold,
        solved=True,
        found=discovery.found,
        holds=discovery.found and report.passed,
        statements={one.name: one.decision for one in report.statements} if discovery.found else {},
        loss=report.combined.mean,
        unablated=report.unablated.mean,
        explains=report.combined.mean <= allowed_loss(report.unablated, report.threshold),
        content=len(content),
        divided=sum(not own.on_all_instances(roles) for own in content if isinstance(own, OneHot)),
        **only,
        evaluations=discovery.n_evaluations,
        seconds=round(time.perf_counter() - started, 1),
        metadata=made,
        circuit_sha256=discovery.circuit.digest if discovery.found else None,
    )
    named = replace(discovery.circuit, name=str(run), description="Found by: retrieval-interp study census.")
    return Examined(finding, named if discovery.found else None)


def _equivalence(model: Transformer, task: Task, circuit: Circuit, threshold: float) -> dict[str, Any]:
    """Return what a finding says of other circuits that would do; nothing if this one's loss is not clearly low."""
    try:
        found = circuits.equivalence(
            model, task, circuit, threshold=threshold, seed=JUDGE_ON, progress=lambda share: None
        )
    except BadInput:
        return {}
    return {"only_one": found.decision, "equivalents": len(found.circuits), "shared": len(found.shared)}

"""A census of circuits: every trained model of a store reverse-engineered, and what was found kept beside its weights.

FOLDER/tiny/seed-0002/circuit.yaml  its circuit, where one was found; ``validate FOLDER/tiny/seed-0002`` takes it
FOLDER/tiny/seed-0002/census.json   what was found out; a model without it is still to be examined
"""

import json
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import get_args

import circuits
from circuits.checks.statements import STATEMENTS, Decision
from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit, save_circuit
from circuits.errors import BadInput, Unsolved
from circuits.flow.flow_check import ROLE_EXAMPLES
from circuits.losses.loss import allowed_loss, check_threshold
from circuits.mechanisms.one_hot import OneHot
from circuits.utils.files import read_text, write_atomically
from retrieval_interp.models.library import load
from retrieval_interp.models.model_dir import CIRCUIT, WEIGHTS
from retrieval_interp.models.presets import preset
from retrieval_interp.models.provenance import metadata
from retrieval_interp.records import record_of
from retrieval_interp.sweep.job import Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Store

FOUND = "census.json"
AGAIN = f"remove {FOUND} there to examine the model again"
SELECT_ON, JUDGE_ON = 0, 1  # seeds of the examples, as ``discover`` has them
EXAMPLES, MOST = 1024, 16 * 1024  # to judge on; more where chance could decide


@dataclass(frozen=True)
class Finding:
    """What discovery found in a model, and how it was judged.

    Attributes:
        preset: of the model.
        seed: of the model.
        threshold: a loss below it counted as low.
        solved: whether the model solves its task; one that does not has no circuit.
        found: whether a circuit was found.
        holds: whether it holds on fresh examples (Appendix E, all steps).
        statements: what is said of it on these, ``holds``, ``fails`` or ``undecided`` by name; empty without a circuit,
            and in files of older versions.
        loss: on fresh examples, with all of the model's attention replaced by the circuit, or by the best that comes
            near to one; None if the model does not solve its task.
        unablated: the model's own loss on the same examples; None where ``loss`` is, and in files of older versions.
        explains: whether the loss is at most twice the model's own, plus 0.005.
        content: how many heads look at content.
        divided: how many of these follow some chains only.
        evaluations: sequences that discovery ran.
        seconds: that discovery and validation took.
        metadata: the model's weights (their hash), device, precision, and versions; empty in files of older versions.
        circuit_sha256: of the circuit beside it; None where none was found, and in files of older versions.
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
    evaluations: int = 0
    seconds: float = 0.0
    metadata: dict[str, str] = field(default_factory=dict)
    circuit_sha256: str | None = None

    def __post_init__(self) -> None:
        known = {*self.statements} <= {*STATEMENTS} and {*self.statements.values()} <= {*get_args(Decision)}
        contradicts = (
            not known or self.holds > self.found or self.found > self.solved or (self.loss is None) == self.solved
        )
        if contradicts or (self.circuit_sha256 is not None and not self.found):
            raise ValueError("what it says contradicts itself")
        numbers = (self.loss or 0, self.unablated or 0, self.content - self.divided, self.divided, self.evaluations)
        if min(*numbers, self.seconds) < 0:
            raise ValueError("a loss, a number or a time is below 0, or more heads are divided than there are")

    @property
    def run(self) -> Run:
        """Whose circuit it is."""
        return Run(self.preset, self.seed)


@dataclass(frozen=True)
class Examined:
    """A finding, and the circuit where one was found."""

    finding: Finding
    circuit: Circuit | None


class Census:
    """What was found out about the models of a store; kept in their folders.

    Attributes:
        runs: the models that were examined, or can be.
        left_out: how many others the store holds, without their weights.
    """

    def __init__(self, store: Store, threshold: float) -> None:
        """The census of a store, with the threshold below which a loss counts as low.

        Raises:
            BadInput: the store holds no run with weights, or something damaged, or the threshold is no number above 0.
        """
        check_threshold(threshold)
        self.store, self.threshold = store, threshold
        results = store.results(store.runs)  # refuses what is damaged, or of other settings
        self.runs = tuple(result.run for result in results if examinable(store, result.run))
        self.left_out = len(results) - len(self.runs)
        if not self.runs:
            raise BadInput(f"{store.folder}: holds no run with weights; sweep with --weights")

    def has(self, run: Run) -> bool:
        """Whether a model was examined."""
        return self.store.has(run, FOUND)

    def claimed(self, run: Run) -> AbstractContextManager[bool]:
        """Whether a model is still to be examined, and nobody else is at it."""
        return self.store.claimed(run, FOUND)

    def add(self, examined: Examined) -> None:
        """Keep what was found.

        Raises:
            BadInput: it cannot be written.
        """
        folder = self.store.path(examined.finding.run)
        if examined.circuit is not None:
            save_circuit(examined.circuit, folder / CIRCUIT)
        else:
            (folder / CIRCUIT).unlink(missing_ok=True)
        write_atomically(folder / FOUND, json.dumps(asdict(examined.finding)) + "\n")

    def failed(self, run: Run, reason: str) -> None:
        """Write down that a model could not be examined, and why."""
        self.store.failed(run, reason)

    def examined(self) -> list[Examined]:
        """What was found out about the models that were examined.

        Raises:
            BadInput: something is damaged, or was found with another threshold.
        """
        return [self._examined(run) for run in self.runs if self.has(run)]

    def _examined(self, run: Run) -> Examined:
        path = self.store.path(run) / FOUND
        try:
            finding = record_of(Finding, read_text(path, "what a census found"))
        except ValueError as error:
            raise BadInput(f"{path}: damaged ({error}); {AGAIN}") from error
        if finding.run != run:
            raise BadInput(f"{path}: is not of {run}; {AGAIN}")
        if finding.threshold != self.threshold:
            found_with = f"was found with the threshold {finding.threshold:g}, not {self.threshold:g}"
            raise BadInput(f"{path}: {found_with}; {AGAIN}")
        there, known = self._weights_sha256(run), finding.metadata.get("weights_sha256")
        if None not in (there, known) and there != known:
            raise BadInput(f"{path}: is of other weights than those beside it; {AGAIN}")
        return Examined(finding, self._circuit(run, finding) if finding.found else None)

    def _weights_sha256(self, run: Run) -> str | None:
        """The hash of a run's weights; None where they were removed."""
        if not self.store.has(run, WEIGHTS):
            return None
        return str(metadata(str(run), load(self.store.path(run)).model)["weights_sha256"])

    def _circuit(self, run: Run, finding: Finding) -> Circuit:
        chosen, path = preset(run.preset), self.store.path(run) / CIRCUIT
        circuit = load_circuit(path)
        circuit.check(chosen.task.examples(1, 0).roles, chosen.architecture.n_layers, chosen.architecture.n_heads)
        if finding.circuit_sha256 not in (None, circuit.digest):
            raise BadInput(f"{path}: is not the circuit that was found; {AGAIN}")
        if not circuit.paths:
            raise BadInput(f"{path}: has no path; {AGAIN}")
        return circuit


def examinable(store: Store, run: Run) -> bool:
    """Whether a run keeps its weights, or was examined and needs them no more."""
    return store.has(run, WEIGHTS) or store.has(run, FOUND)


def examine(job: Job, progress: Callable[[float], None], folder: Path, threshold: float) -> Examined:
    """Find the circuit of a job's model, and validate it on fresh examples.

    Args:
        job: whose model.
        progress: is told the finished share, 0 to 1.
        folder: of the store.
        threshold: a loss below it counts as low.
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
    roles = task.examples(ROLE_EXAMPLES, SELECT_ON).roles
    looking = [discovery.circuit.heads[head] for head in discovery.heads.content]
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
        explains=report.combined.mean <= allowed_loss(report.unablated),
        content=len(discovery.heads.content),
        divided=sum(not own.on_all_instances(roles) for own in looking if isinstance(own, OneHot)),
        evaluations=discovery.n_evaluations,
        seconds=round(time.perf_counter() - started, 1),
        metadata=made,
        circuit_sha256=discovery.circuit.digest if discovery.found else None,
    )
    named = replace(discovery.circuit, name=str(run), description="Found by: retrieval-interp study census.")
    return Examined(finding, named if discovery.found else None)

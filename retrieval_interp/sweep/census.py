"""A census of circuits: every trained model of a store reverse-engineered, and what was found kept beside its weights.

FOLDER/tiny/seed-0002/circuit.yaml  its circuit, where one was found; ``validate FOLDER/tiny/seed-0002`` takes it
FOLDER/tiny/seed-0002/census.json   what was found out; a model without it is still to be examined
"""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import get_args

import circuits
from circuits.circuit import Circuit
from circuits.circuit_file import load_circuit, save_circuit
from circuits.errors import BadInput, Unsolved
from circuits.files import read_text, write_atomically
from circuits.loss import check_threshold, explained_below
from circuits.one_hot import OneHot
from circuits.soundness import ROLE_EXAMPLES
from circuits.statements import STATEMENTS, Decision
from retrieval_interp.library import load
from retrieval_interp.model_dir import CIRCUIT, WEIGHTS
from retrieval_interp.presets import preset
from retrieval_interp.provenance import about
from retrieval_interp.sweep.job import Failure, Job
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.record import record_of
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
        full: the model's own loss on the same examples; None where ``loss`` is, and in files of older versions.
        explains: whether the loss is at most twice the model's own, plus 0.005.
        content: how many heads look at content.
        divided: how many of these follow some chains only.
        evaluations: sequences that discovery ran.
        seconds: that discovery and validation took.
        about: the model's weights (their hash), device, precision, and versions; empty in files of older versions.
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
    full: float | None = None
    explains: bool = False
    content: int = 0
    divided: int = 0
    evaluations: int = 0
    seconds: float = 0.0
    about: dict[str, str] = field(default_factory=dict)
    circuit_sha256: str | None = None

    def __post_init__(self) -> None:
        known = {*self.statements} <= {*STATEMENTS} and {*self.statements.values()} <= {*get_args(Decision)}
        contradicts = (
            not known or self.holds > self.found or self.found > self.solved or (self.loss is None) == self.solved
        )
        if contradicts or (self.circuit_sha256 is not None and not self.found):
            raise ValueError("what it says contradicts itself")
        numbers = (self.loss or 0, self.full or 0, self.content - self.divided, self.divided, self.evaluations)
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

    def claimed(self, runs: Sequence[Run]) -> AbstractContextManager[tuple[Run, ...]]:
        """Those that are still to be examined, and that nobody else is at."""
        return self.store.claimed(runs, FOUND)

    def add(self, *outcomes: Examined) -> None:
        """Keep what was found.

        Raises:
            BadInput: it cannot be written.
        """
        for examined in outcomes:
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
        there, known = self._weights_sha256(run), finding.about.get("weights_sha256")
        if None not in (there, known) and there != known:
            raise BadInput(f"{path}: is of other weights than those beside it; {AGAIN}")
        return Examined(finding, self._circuit(run, finding) if finding.found else None)

    def _weights_sha256(self, run: Run) -> str | None:
        """The hash of a run's weights; None where they were removed."""
        if not self.store.has(run, WEIGHTS):
            return None
        return str(about(str(run), load(self.store.path(run)).model)["weights_sha256"])

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


def examine(job: Job, progress: Callable[[float], None], folder: Path, threshold: float) -> list[Examined | Failure]:
    """Find the circuit of each model of a job, and judge it on fresh examples.

    Args:
        job: whose models.
        progress: is told the finished share, 0 to 1.
        folder: of the store.
        threshold: a loss below it counts as low.
    """
    store, found = Store(folder), list[Examined | Failure]()
    for n, run in enumerate(job.runs):

        def told(share: float, n: int = n) -> None:
            progress((n + share) / len(job.runs))

        found.append(_examined_model(store.path(run), run, threshold, told))
    return found


def _examined_model(folder: Path, run: Run, threshold: float, progress: Callable[[float], None]) -> Examined:
    started = time.perf_counter()
    model, task, _ = load(folder)
    made = about(str(run), model)
    try:
        discovery = circuits.discover(model, task, seed=SELECT_ON, threshold=threshold, progress=progress)
    except Unsolved:
        return Examined(Finding(run.preset, run.seed, threshold, solved=False, about=made), None)
    report = circuits.validate(
        model, task, discovery.circuit, n_examples=EXAMPLES, seed=JUDGE_ON, threshold=threshold, most=MOST
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
        full=report.full.mean,
        explains=report.combined.mean <= explained_below(report.full),
        content=len(discovery.heads.content),
        divided=sum(not own.on_all_chains(roles) for own in looking if isinstance(own, OneHot)),
        evaluations=discovery.n_evaluations,
        seconds=round(time.perf_counter() - started, 1),
        about=made,
        circuit_sha256=discovery.circuit.digest if discovery.found else None,
    )
    named = replace(discovery.circuit, name=str(run), description="Found by: retrieval-interp census.")
    return Examined(finding, named if discovery.found else None)

"""How the heads of a circuit find their place: every measurement of ``circuits.composition`` on one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from circuits.checks.self_consistency_result import SelfConsistency
from circuits.circuit import Circuit
from circuits.composition.edges import Composition
from circuits.errors import BadInput
from circuits.flow.flow_check import FlowCheck, LaidOut, flow_check
from circuits.flow.layout import Layout
from circuits.interchange.interchange_result import InterchangeResult
from circuits.interchange.variables import Interchangeable
from circuits.mlps.mlp_report import MLPReport
from circuits.model.transformer import Transformer
from circuits.problem import Problem
from circuits.role_paths import role_paths
from circuits.utils.lazy import pandas as pd
from circuits.utils.progress import Progress, part_of, shown
from retrieval_interp.probes.role_probes import RoleProbes, probe_roles
from retrieval_interp.tasks.retrieval import RetrievalTask

TABLES = ("edges", "self_consistency", "interchange", "mlps", "role_probes")
FILES = (*(f"{name}.csv" for name in TABLES), "composition.html")
FOLD = 4  # times as many examples for self-consistency and probes


class Tabular(Protocol):
    """A result with a table."""

    def table(self) -> pd.DataFrame:
        """Return the table."""


@dataclass(frozen=True)
class CompositionStudy:
    """All measurements; those that the model or the task does not allow are None.

    Attributes:
        flow: the flow check, without the weights.
        path_patching: the senders of every path; or why they could not be measured.
        self_consistency: what the content heads do by themselves.
        interchange: which symbol passes through which role and layer.
        mlps: where MLPs are needed.
        probes: what every role knows after each layer.
    """

    flow: FlowCheck | None
    path_patching: Composition | str
    self_consistency: SelfConsistency
    interchange: InterchangeResult | None
    mlps: MLPReport | None
    probes: RoleProbes | None

    @property
    def low(self) -> bool:
        """Whether the loss with all heads of the circuit replaced is clearly below the threshold."""
        combined, threshold = self.self_consistency.combined, self.self_consistency.threshold
        return combined.mean < threshold and not combined.near(threshold)

    @property
    def edges(self) -> Composition | None:
        """The senders of every path, if they could be measured."""
        return None if isinstance(self.path_patching, str) else self.path_patching

    def findings(self) -> dict[str, tuple[str, ...]]:
        """Return the findings in words, by the title of the measurement."""
        said = {
            "Self-consistency": self.self_consistency.sentences(),
            "Flow check": self.flow.sentences(self.low) if self.flow else (),
            "Path patching": self.edges.sentences() if self.edges else (f"Left out: {self.path_patching}",),
            "Interchange interventions": self.interchange.sentences() if self.interchange else (),
            "MLPs": self.mlps.sentences() if self.mlps else (),
            "Probes": self.probes.sentences() if self.probes else (),
        }
        return {title: sentences for title, sentences in said.items() if sentences}

    def sentences(self) -> tuple[str, ...]:
        """Return all findings in words."""
        return tuple(sentence for sentences in self.findings().values() for sentence in sentences)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Return the tables, by name."""
        parts: tuple[Tabular | None, ...] = (
            self.edges,
            self.self_consistency,
            self.interchange,
            self.mlps,
            self.probes,
        )
        return {name: part.table() for name, part in zip(TABLES, parts, strict=True) if part is not None}

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts; null for what was not measured and for numbers that do not exist."""
        parts = {
            "self_consistency": self.self_consistency.to_json(),
            "flow_check": self.flow and self.flow.to_json(self.low),
            "path_patching": self.edges and self.edges.to_json(),
            "interchange": self.interchange and self.interchange.to_json(),
            "mlps": self.mlps and self.mlps.to_json(),
            "role_probes": self.probes and self.probes.to_json(),
        }
        return {"decision": self.self_consistency.decision, **_without_nan(parts), "sentences": [*self.sentences()]}


def composition_study(
    model: Transformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 128,
    seed: int = 0,
    threshold: float = 0.05,
    progress: Progress | None = None,
) -> CompositionStudy:
    """Measure how the heads of a circuit find their place.

    Args:
        model: a model trained on ``problem``.
        problem: the task.
        circuit: the model's circuit.
        n_examples: the number of examples of every measurement. Self-consistency, whose losses are near the threshold
            at times, and the probes, which are fitted, use four times as many.
        seed: the seed of all examples; every measurement has its own.
        threshold: a loss below it counts as low.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit or has no path between roles, the examples have padding, or a number is out
            of range.
    """
    from circuits.checks.self_consistency import self_consistency
    from circuits.composition.path_patching import path_patching
    from circuits.interchange.interchange import interchange
    from circuits.mlps.mlps import mlp_ablations

    asked: dict[str, Any] = {"n_examples": n_examples, "seed": seed}
    more = {**asked, "n_examples": FOLD * n_examples}
    several = problem.examples(1, 0).roles.positions.shape[2] > 1
    predicting = circuit if isinstance(problem, LaidOut) and _all_known(circuit, problem.layout) else None
    with shown(progress, "composition") as progress:
        consistent = self_consistency(
            model, problem, circuit, threshold=threshold, **more, progress=part_of(progress, 0.0, 0.1)
        )
        edges: Composition | str
        try:
            edges = path_patching(model, problem, circuit, **asked, progress=part_of(progress, 0.1, 0.4))
        except BadInput as error:  # the circuit fits, as was seen above; what this model writes does not add up
            edges = str(error)
        exchanged, mlps, probes = None, None, None
        if isinstance(problem, Interchangeable) and several:
            part = part_of(progress, 0.4, 0.7)
            exchanged = interchange(model, problem, circuit=predicting, **asked, progress=part)
        if not getattr(model.cfg, "attn_only", False):
            mlps = mlp_ablations(model, problem, threshold=threshold, **asked, progress=part_of(progress, 0.7, 0.9))
        if isinstance(problem, RetrievalTask):
            probes = probe_roles(model, problem, **more, progress=part_of(progress, 0.9, 1.0))
        progress(1.0)
    return CompositionStudy(flow_check(circuit, problem), edges, consistent, exchanged, mlps, probes)


def _all_known(circuit: Circuit, layout: Layout) -> bool:
    """Whether the layout says what is known at the target of every path; else the paths predict nothing."""
    return all(layout.start[path.target] for path in role_paths(circuit))


def _without_nan(value: Any) -> Any:
    """Return plain values with None for numbers that do not exist."""
    if isinstance(value, Mapping):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if value != value else value

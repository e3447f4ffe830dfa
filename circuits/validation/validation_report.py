"""The results of a validation: typed results, tables, and the JSON that docs/reports.md explains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxtyping import Float

from circuits.checks.content_or_position import ContentOrPosition
from circuits.checks.faithfulness import Faithfulness
from circuits.checks.heads_alone import HeadResult
from circuits.checks.merging import Merge
from circuits.checks.paper_protocol import PaperProtocol
from circuits.checks.removals import PathResult
from circuits.checks.statements import REQUIRED, STATEMENTS, Decision, Protocol, Statement, Verdict
from circuits.circuit import Circuit
from circuits.circuit_file import dump_circuit
from circuits.discovery.discovery import Discovery
from circuits.flow.flow_check import FlowCheck
from circuits.losses.loss import Loss
from circuits.model.transformer import Transformer
from circuits.null_models.chance import ChanceReport
from circuits.task import Task
from circuits.tracing.edges import Composition
from circuits.tracing.self_consistency_result import SelfConsistency
from circuits.utils.files import to_path
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly, torch

SCHEMA = 5


@dataclass(frozen=True)
class ValidationReport:
    """The results of ``validate``; ``to_json`` is their documented, stable form.

    Attributes:
        circuit: the hypothesis.
        threshold: the threshold; a loss below it counts as low.
        strict_threshold: the strict threshold for single paths; lower if the circuit explains all that the model does.
        n_examples: the number of fresh examples; a loss that was clear on fewer was measured on fewer.
        seed: the seed of the examples.
        roles: the names of the roles, in the order of ``attention``.
        unablated: the loss of the unablated model.
        combined: the loss with all named heads replaced (step 5).
        up_to: for every layer, the loss with the named heads up to this layer replaced and those above intact.
        heads: the results of step 3.
        paths: the results of step 6 and of the alternative targets.
        merges: every merge of two heads that the whole circuit needs, lowest loss first; empty if the combined loss is
            not below the threshold.
        verdicts: the outcome of every step.
        content_or_position: the content heads and the positional heads.
        faithfulness: the losses of the circuit's heads without the others.
        paper: the results of Appendix E to the letter.
        protocol: the protocol that ``decision`` follows.
        attention: the average attention from role to role in the unablated model.
        flow_check: what the paths could carry by information flow; None if the task has no layout.
        metadata: further facts about the model.
        model: the model.
        task: the model's task.
    """

    circuit: Circuit
    threshold: float
    strict_threshold: float
    n_examples: int
    seed: int
    roles: tuple[str, ...]
    unablated: Loss
    combined: Loss
    up_to: tuple[Loss, ...]
    heads: tuple[HeadResult, ...]
    paths: tuple[PathResult, ...]
    merges: tuple[Merge, ...]
    verdicts: tuple[Verdict, ...]
    content_or_position: ContentOrPosition
    faithfulness: Faithfulness
    paper: PaperProtocol
    protocol: Protocol
    attention: Float[torch.Tensor, "layer head query_role key_role"] = field(repr=False)
    flow_check: FlowCheck | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    model: Transformer = field(repr=False, compare=False, kw_only=True)
    task: Task = field(repr=False, compare=False, kw_only=True)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements about the circuit, each with the verdicts of its steps."""
        return tuple(
            Statement(name, tuple(verdict for verdict in self.verdicts if verdict.step in steps))
            for name, steps in STATEMENTS.items()
        )

    @property
    def decision(self) -> Decision:
        """``holds`` only if no statement fails, the circuit accounts for the output, and it is faithful."""
        if self.protocol == "paper":
            return self.paper.decision
        decisions = {statement.name: statement.decision for statement in self.statements}
        if "fails" in decisions.values():
            return "fails"
        return "holds" if all(decisions[name] == "holds" for name in REQUIRED) else "undecided"

    @property
    def passed(self) -> bool:
        """Whether the circuit holds; an undecided circuit has not passed."""
        return self.decision == "holds"

    @property
    def headline(self) -> str:
        """One line: the decision, and the statements that do not hold."""
        if self.protocol == "paper":
            return f"{self.decision}, by Appendix E to the letter"
        said = {statement.name: statement.decision for statement in self.statements}
        others = [f"{name}: {decision}" for name, decision in said.items() if decision != "holds"]
        return self.decision + (f" ({'; '.join(others)})" if others else "")

    @property
    def more_examples_could_decide(self) -> bool:
        """Whether more examples could change the outcome of step 5, or of step 6 if step 5 is passed."""
        if self.combined.mean >= self.threshold:
            return self.combined.near(self.threshold)
        return self.combined.near(self.threshold) or any(path.needed == "undecided" for path in self.paths)

    def save(
        self,
        folder: Path | str,
        chance: ChanceReport | None = None,
        discovery: Discovery | None = None,
        composition: Composition | None = None,
        self_consistency: SelfConsistency | None = None,
    ) -> Path:
        """Write report.json, report.md and report.html into a folder, and return the path of the page.

        Args:
            folder: the folder; it is created if it does not exist.
            chance: the result of ``against_chance``, shown if given.
            discovery: the discovery that found the circuit, shown if given.
            composition: the result of ``path_patching``, shown if given.
            self_consistency: the result of ``self_consistency``, shown if given.

        Raises:
            BadInput: a file cannot be written to the folder.
        """
        from circuits.validation.report_files import Further, write_report

        further = Further(chance, discovery, composition, self_consistency)
        return write_report(self, to_path(folder), further)

    def plot(self) -> plotly.graph_objects.Figure:
        """Plot the loss without each attention path."""
        from circuits.validation.loss_figures import loss_figure

        return loss_figure(self)

    def heads_table(self) -> pd.DataFrame:
        """Step 3 as a table: one row for each named head, with its loss under each mechanism."""
        rows = [
            {"head": str(h.head), "hypothesis": h.hypothesis, **_columns(h.losses)["losses"], "alone": h.alone}
            for h in self.heads
        ]
        return pd.DataFrame(rows).set_index("head")

    def paths_table(self) -> pd.DataFrame:
        """Step 6 as a table: one row for each path, with the loss without it."""
        rows = []
        for p in self.paths:
            indirect = {f"heads above intact, {name}": loss.mean for name, loss in p.indirect.items()}
            own = {"needed": p.needed, "alternative_targets": ", ".join(p.alternative_targets)}
            rows.append({"path": str(p.path), **_columns(p.losses)["losses"], **indirect, **own})
        return pd.DataFrame(rows, columns=None if rows else ["path"]).set_index("path")

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain numbers and texts; docs/reports.md explains every key."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "decision": self.decision,
            "protocol": self.protocol,
            "statements": {statement.name: statement.decision for statement in self.statements},
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "paper": self.paper.to_json(),
            "content_or_position": self.content_or_position.to_json(),
            "faithfulness": self.faithfulness.to_json(self.unablated),
            "threshold": self.threshold,
            "strict_threshold": self.strict_threshold,
            "examples": self.n_examples,
            "seed": self.seed,
            "metadata": {**self.metadata},
            "circuit": {
                "name": self.circuit.name,
                "description": self.circuit.description,
                "yaml": dump_circuit(self.circuit),
                "sha256": self.circuit.digest,
            },
            "loss": {
                "unablated": self.unablated.mean,
                "combined": self.combined.mean,
                "details": {"unablated": self.unablated.to_json(), "combined": self.combined.to_json()},
                "up_to_layer": [loss.to_json() for loss in self.up_to],
            },
            "heads": [
                {
                    "head": str(h.head),
                    "layer": h.head.layer,
                    "index": h.head.index,
                    "hypothesis": h.hypothesis,
                    **_columns(h.losses),
                    "simplest": h.simplest,
                    "alone": h.alone,
                    "passed": h.passed,
                }
                for h in self.heads
            ],
            "paths": [
                {
                    "path": str(p.path),
                    "layer": p.path.head.layer,
                    "index": p.path.head.index,
                    "from": p.path.source,
                    "to": p.path.target,
                    **_columns(p.losses),
                    "indirect": {**_columns(p.indirect), "layer": p.intact_above},
                    "retargeted": _columns(p.retargeted),
                    "alternative_targets": list(p.alternative_targets),
                    "better_targets": list(p.better_targets),
                    "needed": p.needed,
                    "necessary": p.necessary,
                    "weak": p.weak,
                    "in_first_useful_layer": p.in_first_useful_layer,
                }
                for p in self.paths
            ],
            "merges": [
                {
                    "from": str(m.giver),
                    "into": str(m.taker),
                    "loss": m.loss.mean,
                    "standard_error": m.loss.standard_error,
                    "examples": m.loss.n_examples,
                }
                for m in self.merges
            ],
            "flow_check": self.flow_check.model_dump(mode="json") if self.flow_check else None,
        }


def _columns(losses: dict[str, Loss]) -> dict[str, dict[str, float]]:
    return {
        "losses": {name: loss.mean for name, loss in losses.items()},
        "standard_errors": {name: loss.standard_error for name, loss in losses.items()},
        "examples": {name: loss.n_examples for name, loss in losses.items()},
    }

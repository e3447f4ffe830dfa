"""The report of a validation: every result as a record, and the statements about the circuit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from circuits.checks.agreement import Agreement
from circuits.checks.carries import Carries
from circuits.checks.completeness import Knockout
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import Faithfulness
from circuits.checks.minimality import Removal
from circuits.checks.paper_protocol import PaperProtocol
from circuits.checks.uniqueness import Uniqueness
from circuits.circuit import Head
from circuits.circuit_file import StoredCircuit
from circuits.discovery.discovery import Discovery
from circuits.errors import BadInput, plain
from circuits.losses.loss import Mean
from circuits.losses.sequential_test import DecidedLoss, Range
from circuits.mechanisms.mechanism import Idle, Resample
from circuits.results import PAGE, REPORT, SUMMARY, Decision, Number, Protocol, Result, Verdict, together
from circuits.settings import Settings
from circuits.tracing.edges import Composition
from circuits.utils.files import read_text, to_path, write_together
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly

NOTHING = "says nothing"
STATEMENTS = ("solves", "agrees", "faithful", "complete", "carries", "minimal")  # a circuit holds if all of them hold


class Statement(Result):
    """One statement about a circuit.

    Attributes:
        name: one of ``STATEMENTS``, or ``Appendix E to the letter``.
        decision: ``fails`` if a part of it fails, ``holds`` if all hold, else ``undecided``.
        verdicts: the verdicts of its parts.
    """

    name: str
    decision: Decision
    verdicts: tuple[Verdict, ...]


class Report(Result):
    """The results of ``validate``.

    Attributes:
        schema_version: the version of this record; it changes when a field changes its name or meaning.
        protocol: what decides: every check (``extended``), or Appendix E to the letter (``paper``).
        decision: ``holds`` if all statements hold, ``fails`` if one fails, else ``undecided``; of protocol ``paper``,
            the decision of Appendix E to the letter.
        statements: the statements about the circuit, each with its verdicts.
        says_nothing: the statements that hold because there is nothing to test, with the reason.
        circuit: the hypothesis.
        threshold: an excess loss below this share of the range counts as low; by the paper's protocol, a loss below it.
        n_examples: the number of fresh examples; a loss that was clear on fewer was measured on fewer.
        seed: the seed of the examples.
        settings: the numbers that decided.
        scale: the model's own loss, and that with all heads idle.
        combined: the loss with all named heads replaced or idle.
        up_to: for every layer, the loss with the named heads up to this layer replaced and those above intact.
        split: the number of examples for each purpose, if the task has a fixed data set; else empty.
        agreement: how far the circuit's outputs are from the model's.
        faithfulness: the losses of the circuit's heads without the others.
        knockouts: heads of the circuit made idle, in the circuit and in the model.
        carries: the flow check and self-consistency.
        parts: the circuit without each path, and with each positional head idle.
        uniqueness: other targets of paths; information beside the verdict.
        paper: the results of Appendix E to the letter; None for a model with many heads.
        metadata: further facts about the model.
        discovery: the discovery that found the circuit, if there was one.
        composition: the result of ``path_patching``, if it was run.
        first: of a model with many heads, the average attention of every head to the first token; else empty.
        attends: what the roles look at, on average, in those that look at content, as text; seen, and not tested.
    """

    schema_version: Literal[8] = 8
    protocol: Protocol = "extended"
    decision: Decision
    statements: tuple[Statement, ...]
    says_nothing: dict[str, str] = Field(default_factory=dict)
    circuit: StoredCircuit
    threshold: float
    n_examples: int
    seed: int
    settings: Settings
    scale: Range
    combined: DecidedLoss
    up_to: tuple[DecidedLoss, ...]
    split: dict[str, int]
    agreement: Agreement
    faithfulness: Faithfulness
    knockouts: tuple[Knockout, ...]
    carries: Carries
    parts: tuple[Removal, ...]
    uniqueness: Uniqueness
    paper: PaperProtocol | None
    metadata: dict[str, Any] = Field(default_factory=dict)
    discovery: Discovery | None = None
    composition: Composition | None = None
    first: dict[Head, Number] = Field(default_factory=dict)
    attends: dict[Head, str] = Field(default_factory=dict)
    _experiment: Experiment | None = PrivateAttr(None)  # of a report that was made in this process

    @classmethod
    def read(cls, path: Path | str) -> Report:
        """Read ``report.json``, or that of a folder.

        Raises:
            BadInput: the file is missing or damaged, of another schema, or its circuit was changed.
        """
        path = to_path(path)
        path = path / REPORT if path.is_dir() else path
        text = read_text(path, "a report of `validate`")
        try:
            document = json.loads(text, object_pairs_hook=_each_key_once)
            version = document.get("schema_version", document.get("schema"))
            if version == 8:
                return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = ": ".join([".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")])
            raise BadInput(f"{path}: not a report of `validate` ({said.removeprefix(': ')})") from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise BadInput(f"{path}: not a report of `validate` ({error})") from error
        raise BadInput(f"{path}: a report of schema {version}; expected 8: validate again")

    def save(self, folder: Path | str) -> Path:
        """Write report.json, report.md and report.html into a folder, and return the path of the page.

        Raises:
            BadInput: a file cannot be written to the folder.
        """
        from circuits.report.page import markdown, page

        folder = to_path(folder)
        files = {REPORT: self.model_dump_json() + "\n", SUMMARY: markdown(self), PAGE: page(self, self._experiment)}
        write_together({folder / name: content for name, content in files.items()})
        return folder / PAGE

    def by(self, protocol: str) -> Report:
        """Return the report with the decision of a protocol; BadInput if there is no such protocol."""
        whole = together(one.decision for one in self.statements)
        decisions = {"extended": whole, "paper": self.paper.decision if self.paper else None}
        if protocol == "paper" and not self.paper:
            raise BadInput("Appendix E to the letter was not run: it takes each head alone, and the model has many")
        if protocol not in decisions:
            raise BadInput(f"the protocol is {protocol!r:.60}; expected extended or paper")
        return self.model_copy(update={"protocol": protocol, "decision": decisions[protocol]})

    def about(self, metadata: Mapping[str, Any]) -> Report:
        """Return the report with further facts about the model, beside those that it has.

        Raises:
            BadInput: they cannot be written as JSON.
        """
        if not isinstance(metadata, Mapping):
            raise BadInput(f"the metadata: got {type(metadata).__name__}; expected a mapping")
        return self.model_copy(update={"metadata": self.metadata | plain("the metadata", dict(metadata))})

    @model_validator(mode="after")
    def _follows(self) -> Report:
        if tuple(one.name for one in self.statements) != STATEMENTS:
            raise BadInput(f"the statements are not {', '.join(STATEMENTS)}")
        if self.by(self.protocol).decision != self.decision:
            raise BadInput(f"the decision is {self.decision!r}; expected what follows from the statements")
        ablated = any(isinstance(one, Idle | Resample) for one in self.circuit.heads.values())
        empty = {} if ablated else dict.fromkeys(("faithful", "complete"), "no head is idle or resampled")
        empty |= {} if self.carries.flow or self.carries.self_consistency else {"carries": "no path between roles"}
        self.__dict__["says_nothing"] = empty  # it follows from the rest, whatever a file says
        return self

    def __repr__(self) -> str:
        """Return the headline; a report has thousands of numbers."""
        from circuits.report.strip import strip

        return f"Report: {'; '.join(map(str, strip(self)))}"

    def __eq__(self, other: object) -> bool:
        """Compare the results, not the models that they were made with."""
        return isinstance(other, Report) and self.__dict__ == other.__dict__

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of all statements."""
        return tuple(verdict for statement in self.statements for verdict in statement.verdicts)

    @property
    def all_statements(self) -> tuple[Statement, ...]:
        """The statements as page, terminal and Markdown say them: Appendix E to the letter is the last."""
        if (paper := self.paper) is None:
            return self.statements
        letter = Statement(name="Appendix E to the letter", decision=paper.decision, verdicts=paper.verdicts)
        return (*self.statements, letter)

    def outcome(self, statement: Statement) -> str:
        """Return a decision in words."""
        return NOTHING if statement.name in self.says_nothing else statement.decision

    @property
    def notes(self) -> tuple[str, ...]:
        """What stands beside the verdict: the nulls, and other circuits that do as well."""
        parts = ", ".join(f"{n} for {purpose}" for purpose, n in self.split.items())
        split = [f"The data set is fixed; its examples are split: {parts}."] if parts else []
        limit = self.scale.own.mean + self.threshold * self.scale.width
        others = [self.uniqueness.note(limit)] if self.uniqueness.targets else []
        return (*self.faithfulness.notes, *self._of_many, *others, *split)

    @property
    def _of_many(self) -> tuple[str, ...]:
        """What is said of a model with many heads: which heads work against the task, and how many look at nothing."""
        if not self.first:
            return ()
        kinds = self.circuit.heads.values()
        looking, idle = sum(one.varies for one in kinds), sum(one == Idle() for one in kinds)
        sinks = sum(share > 0.5 for share in self.first.values())
        said = [
            f"Of {len(kinds)} named heads, {looking} have paths or are intact. {idle} others are idle and "
            f"{len(kinds) - looking - idle} have a fixed pattern, all at once: these were not tested one by one.",
            f"{sinks} heads give the first token more than half of their attention, on average.",
        ]
        for name, own in [*self.combined.loss.measures.items()][:1]:
            clear = against(self.parts, self.settings.least * own)
            if by := ", ".join(f"{head} (by {more})" for head, more in clear.items()):
                said.append(f"Work against the task: with all that was tried instead, the {name} rises without {by}.")
        return tuple(said)

    @property
    def more_examples_could_decide(self) -> bool:
        """Whether more examples could change the verdict: nothing fails, and no head is left intact."""
        return self.decision == "undecided" and {*self.faithfulness.heads} <= {*self.circuit.heads}

    def plot(self) -> plotly.graph_objects.Figure:
        """Plot the loss without each attention path."""
        from circuits.report.page import loss_figure

        return loss_figure(self)

    def paths_table(self) -> pd.DataFrame:
        """Return one row for each path and positional head, with the losses without it, and whether it matters."""
        from circuits.report.page import tables

        return tables(self)["paths"].map(lambda value: value.loss.mean if isinstance(value, DecidedLoss) else value)


def against(parts: tuple[Removal, ...], least: float) -> dict[Head, Mean]:
    """Return the heads without which the first measure clearly rises, by ``least`` or more in all ways tried."""
    each = [(one.head, loss.ahead) for one in parts for loss in one.losses.values() if loss.ahead]
    lowest = {head: min((more for own, more in each if own == head), key=lambda one: one.mean) for head, _ in each}
    return {head: more for head, more in lowest.items() if more.positive and more.mean >= least}


def statements_of(verdicts: Mapping[str, tuple[Verdict, ...]]) -> tuple[Statement, ...]:
    """Combine the verdicts of every statement."""
    decisions = {name: together(one.decision for one in parts) for name, parts in verdicts.items()}
    return tuple(Statement(name=name, decision=decisions[name], verdicts=parts) for name, parts in verdicts.items())


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; JSON readers differ in which of two equal keys they use."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice")
    return made

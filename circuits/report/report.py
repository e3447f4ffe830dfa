"""The report of a validation: every result as a record, and the statements about the circuit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from circuits.checks.content_or_position import ContentOrPosition
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import Faithfulness
from circuits.checks.heads_alone import HeadAlone
from circuits.checks.merging import Merge
from circuits.checks.paper_protocol import PaperProtocol
from circuits.checks.removals import PathResult
from circuits.circuit_file import StoredCircuit
from circuits.discovery.discovery import Discovery
from circuits.errors import BadInput, plain
from circuits.flow.flow_check import FlowCheck
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.results import PAGE, REPORT, SUMMARY, Decision, Result, Verdict, together
from circuits.settings import Settings
from circuits.tracing.edges import Composition
from circuits.tracing.self_consistency import SelfConsistency
from circuits.utils.files import read_text, to_path, write_together
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly

Protocol = Literal["extended", "paper"]  # every check, or Appendix E to the letter
STATEMENTS = {  # the statements about a circuit, each with its steps
    "accounts for the output": ("unablated", "step 4", "step 5"),
    "faithful": ("faithful",),
    "complete": ("complete",),
    "minimal": ("step 6", "alternative targets", "merges"),
    "each head alone": ("step 3",),
}
REQUIRED = ("accounts for the output", "faithful")  # a circuit holds only if these statements hold


class Statement(Result):
    """One statement about a circuit.

    Attributes:
        name: one of ``STATEMENTS``, or ``Appendix E to the letter``.
        decision: ``fails`` if a step fails, ``holds`` if all hold, else ``undecided``.
        verdicts: the verdicts of its steps.
    """

    name: str
    decision: Decision
    verdicts: tuple[Verdict, ...]


class Report(Result):
    """The results of ``validate``.

    Attributes:
        schema_version: the version of this record; it changes when a field changes its name or meaning.
        protocol: what decides: every check (``extended``), or Appendix E to the letter (``paper``).
        decision: ``holds`` only if no statement fails, the circuit accounts for the output, and it is faithful; of
            protocol ``paper``, the decision of Appendix E to the letter.
        statements: the statements about the circuit, each with the verdicts of its steps.
        circuit: the hypothesis.
        threshold: a loss below it counts as low.
        strict_threshold: the threshold for single paths; lower if the circuit explains all that the model does.
        n_examples: the number of fresh examples; a loss that was clear on fewer was measured on fewer.
        seed: the seed of the examples.
        settings: the numbers that decided.
        unablated: the loss of the unablated model.
        combined: the loss with all named heads replaced (step 5).
        up_to: for every layer, the loss with the named heads up to this layer replaced and those above intact.
        heads: the results of step 3.
        paths: the results of step 6 and of the alternative targets.
        merges: every merge of two heads that the whole circuit needs, lowest loss first; empty if the combined loss is
            not below the threshold.
        content_or_position: the content heads and the positional heads.
        faithfulness: the losses of the circuit's heads without the others.
        paper: the results of Appendix E to the letter.
        flow: what the paths can carry by information flow; None if the task has no layout.
        metadata: further facts about the model.
        discovery: the discovery that found the circuit, if there was one.
        composition: the result of ``path_patching``, if it was run.
        self_consistency: the result of ``self_consistency``, if it was run.
    """

    schema_version: Literal[6] = 6
    protocol: Protocol = "extended"
    decision: Decision
    statements: tuple[Statement, ...]
    circuit: StoredCircuit
    threshold: float
    strict_threshold: float
    n_examples: int
    seed: int
    settings: Settings
    unablated: Loss
    combined: Loss
    up_to: tuple[Loss, ...]
    heads: tuple[HeadAlone, ...]
    paths: tuple[PathResult, ...]
    merges: tuple[Merge, ...]
    content_or_position: ContentOrPosition
    faithfulness: Faithfulness
    paper: PaperProtocol
    flow: FlowCheck | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)
    discovery: Discovery | None = None
    composition: Composition | None = None
    self_consistency: SelfConsistency | None = None
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
            if version == 6:
                return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            said = ": ".join([".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")])
            raise BadInput(f"{path}: not a report of `validate` ({said.removeprefix(': ')})") from error
        except (ValueError, AttributeError, RecursionError) as error:
            raise BadInput(f"{path}: not a report of `validate` ({error})") from error
        raise BadInput(f"{path}: a report of schema {version}; expected 6: validate again")

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
        """Return the report with the decision of a protocol.

        Raises:
            BadInput: there is no such protocol.
        """
        decisions = {"extended": decided(self.statements), "paper": self.paper.decision}
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
        names, rows = [one.name for one in self.statements], [{*one.losses} for one in self.paths]
        if names != [*STATEMENTS] or any(row != {*REPLACEMENTS} for row in rows):
            raise BadInput("statements or losses without paths are missing or unknown")
        if self.by(self.protocol).decision != self.decision:
            raise BadInput(f"the decision is {self.decision!r}; expected what follows from the statements")
        return self

    def __eq__(self, other: object) -> bool:
        """Compare the results, not the models that they were made with."""
        return isinstance(other, Report) and self.__dict__ == other.__dict__

    @property
    def headline(self) -> str:
        """One line: the decision, and the statements that do not hold."""
        if self.protocol == "paper":
            return f"{self.decision}, by Appendix E to the letter"
        others = [f"{one.name}: {one.decision}" for one in self.statements if one.decision != "holds"]
        return self.decision + (f" ({'; '.join(others)})" if others else "")

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts of all steps."""
        return tuple(verdict for statement in self.statements for verdict in statement.verdicts)

    @property
    def all_statements(self) -> tuple[Statement, ...]:
        """The statements as page, terminal and Markdown say them: Appendix E to the letter is the last."""
        paper = self.paper
        letter = Statement(name="Appendix E to the letter", decision=paper.decision, verdicts=paper.verdicts)
        return (*self.statements, letter)

    @property
    def more_examples_could_decide(self) -> bool:
        """Whether more examples could change the outcome of step 5, or of step 6 if step 5 holds."""
        near = self.combined.near(self.threshold)
        return near or (self.combined.mean < self.threshold and any(one.needed == "undecided" for one in self.paths))

    def plot(self) -> plotly.graph_objects.Figure:
        """Plot the loss without each attention path."""
        from circuits.report.page import loss_figure

        return loss_figure(self)

    def heads_table(self) -> pd.DataFrame:
        """Step 3 as a table: one row for each named head, with its loss under each mechanism."""
        from circuits.report.page import tables

        return tables(self)["heads"].map(lambda value: value.mean if isinstance(value, Loss) else value)

    def paths_table(self) -> pd.DataFrame:
        """Step 6 as a table: one row for each path, with the losses without it, and with the best other target."""
        from circuits.report.page import tables

        return tables(self)["paths"].map(lambda value: value.mean if isinstance(value, Loss) else value)


def decided(statements: tuple[Statement, ...]) -> Decision:
    """Return the decision on a circuit from the statements about it."""
    by_name = {one.name: one.decision for one in statements}
    if "fails" in by_name.values():
        return "fails"
    return together(by_name[name] for name in REQUIRED)


def statements_of(verdicts: tuple[Verdict, ...]) -> tuple[Statement, ...]:
    """Combine the verdicts of all steps into statements."""
    each = {name: tuple(one for one in verdicts if one.name in steps) for name, steps in STATEMENTS.items()}
    decisions = {name: together(one.decision for one in of_steps) for name, of_steps in each.items()}
    return tuple(Statement(name=name, decision=decisions[name], verdicts=of_steps) for name, of_steps in each.items())


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs; JSON readers differ in which of two equal keys they use."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice")
    return made

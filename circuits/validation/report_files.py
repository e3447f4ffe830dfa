"""Validation reports as files: report.json for programs, report.md for a notebook or an issue, report.html to read."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from circuits.attention import split_attention
from circuits.checks.faithfulness import Ablated
from circuits.checks.removals import PathResult
from circuits.checks.self_consistency_result import SelfConsistency
from circuits.checks.statements import REPORT_FILES
from circuits.circuit_file import PATTERNS, dump_circuit, save_patterns
from circuits.composition.edges import Composition
from circuits.discovery.discovery import Discovery
from circuits.figures.attention_figure import attention_figure
from circuits.figures.diagram import circuit_diagram
from circuits.figures.page import figure_element, render_page
from circuits.given import examples_of
from circuits.mechanisms.mechanism import REPLACEMENTS, SIMPLE
from circuits.model.transformer import Transformer
from circuits.null_models.chance import ChanceReport
from circuits.task import Examples
from circuits.utils.files import write_together
from circuits.validation.loss_figures import content_figure, loss_figure
from circuits.validation.validation import ATTENTION_EXAMPLES
from circuits.validation.validation_report import ValidationReport
from circuits.viewer.viewer import attention_viewer, elements

VIEWED_EXAMPLES = 3
FAITHFUL = ("all heads outside the circuit", "the circuit's heads", "all heads", "share recovered")


@dataclass(frozen=True)
class Further:
    """What a report shows beside the validation.

    Attributes:
        chance: the result of ``against_chance``.
        discovery: the discovery that found the circuit.
        composition: the result of ``path_patching``.
        self_consistency: the result of ``self_consistency``.
    """

    chance: ChanceReport | None = None
    discovery: Discovery | None = None
    composition: Composition | None = None
    self_consistency: SelfConsistency | None = None


NOTHING = Further()


def write_report(report: ValidationReport, folder: Path, further: Further = NOTHING) -> Path:
    """Write the three report files and return the path of the HTML page.

    If the circuit has fixed patterns, their numbers go into a fourth file, which ``reproduce`` reads.

    Raises:
        BadInput: a file cannot be written to the folder.
    """
    contents = (
        json.dumps(to_json(report, further)) + "\n",
        markdown(report, further),
        page(report, further),
    )
    save_patterns(report.circuit, folder / f"circuit{PATTERNS}")
    write_together({folder / name: content for name, content in zip(REPORT_FILES, contents, strict=True)})
    return folder / "report.html"


def to_json(report: ValidationReport, further: Further = NOTHING) -> dict[str, Any]:
    """Return the whole report as plain numbers and texts; docs/reports.md explains every key."""
    others = {name: one.to_json() for name, one in vars(further).items() if one and name != "discovery"}
    discovery = {"discovery": further.discovery.model_dump(mode="json")} if further.discovery else {}
    return {**report.to_json(), **others, **discovery}


def page(report: ValidationReport, further: Further = NOTHING) -> str:
    """Return the self-contained page: verdict, diagram, losses, attention from role to role, attention viewers."""
    model, device = report.model, next(report.model.parameters()).device
    examples = examples_of(report.task, ATTENTION_EXAMPLES, report.seed, device)
    order, group = examples.roles.in_order, examples.roles.main_group
    attention = split_attention(model, examples).cpu()
    drawn = report.circuit, examples.roles, model.cfg.n_layers, report.attention
    diagram, edges = circuit_diagram(*drawn), circuit_diagram(*drawn, further.composition)
    return render_page(
        "report.html.jinja",
        report=report,
        replacements=REPLACEMENTS,
        circuit_yaml=dump_circuit(report.circuit),
        diagram=figure_element(diagram, "circuit-diagram"),
        losses=figure_element(loss_figure(report), "losses"),
        attention=figure_element(attention_figure(attention, report.roles, order, group), "role-attention"),
        group=group,
        viewers=_viewers(model, examples.take(slice(0, VIEWED_EXAMPLES))),
        **vars(further),
        edges=further.composition and figure_element(edges, "composition-diagram"),
        content=figure_element(content_figure(report.content_or_position), "content-or-position"),
    )


def markdown(report: ValidationReport, further: Further = NOTHING) -> str:
    """Return the report as Markdown tables."""
    chance, discovery = further.chance, further.discovery
    name = report.circuit.name or "the circuit"
    names = list(report.unablated.components)
    lines = [f"# {name}: {report.headline}", ""]
    for said in report.statements:
        lines += [f"- **{said.name}: {said.decision}**"]
        lines += [f"    - {v.step} {v.outcome}: {v.sentence}" for v in said.verdicts]
    lines += [f"- **Appendix E to the letter: {report.paper.decision}**"]
    lines += [f"    - {v.step} {v.outcome}: {v.sentence}" for v in report.paper.verdicts]
    lines += [
        "",
        f"Each loss is measured on up to {report.n_examples} fresh examples, as many as its decision needs. "
        f"Seed {report.seed}, threshold {report.threshold:g}.",
    ]
    lines += ["", "## Losses", ""]
    rows = [("unablated", report.unablated), ("all heads replaced", report.combined)]
    table = [[label, str(loss), *(f"{loss.components[name]:.4f}" for name in names)] for label, loss in rows]
    lines += _table(["", "loss ± standard error", *names], table)
    lines += ["", "## Content or position", ""]
    table = [
        [str(head), str(loss), report.content_or_position.looks_at(head)]
        for head, loss in report.content_or_position.alone.items()
    ]
    lines += _table(["head", "loss with the head alone replaced with its average", "looks at"], table)
    lines += ["", "## The circuit's heads without the others", ""]
    table = [[one.ablation, *_faithful(one, report)] for one in report.faithfulness.by_ablation]
    lines += _table(["ablation", *(f"ablated: {which}" for which in FAITHFUL[:3]), FAITHFUL[3]], table)
    lines += ["", "## Step 3: each head alone", ""]
    table = [
        [
            str(h.head),
            h.hypothesis,
            *(f"{h.losses[name].mean:.4f}" for name in (*SIMPLE, h.hypothesis)),
            h.simplest or "none",
            h.alone,
        ]
        for h in report.heads
    ]
    columns = [*SIMPLE, "its hypothesis", "simplest below the threshold", "hypothesis alone"]
    lines += _table(["head", "hypothesis", *columns], table)
    lines += ["", "## Step 6: the circuit without one path", ""]
    table = [
        [
            f"`{p.path}`",
            *(str(kind.get(i, "")) for kind in (p.losses, p.indirect) for i in REPLACEMENTS),
            p.needed,
            _nearest(p),
        ]
        for p in report.paths
    ]
    columns = [f"{kind}row made {i}" for kind in ("", "heads above intact, ") for i in REPLACEMENTS]
    lines += _table(["path", *columns, "needed", "best other target"], table)
    if report.flow_check:
        lines += ["", "## Could it work?", "", *(f"- {sentence}" for sentence in report.flow_sentences())]
    if further.composition:
        lines += ["", "## How the heads find their place", ""]
        lines += [f"- {sentence}" for sentence in further.composition.sentences()]
    if further.self_consistency:
        lines += ["", "## Self-consistency", ""]
        lines += [f"- {sentence}" for sentence in further.self_consistency.sentences()]
    if chance:
        lines += ["", "## Is it chance?", "", *(f"- {sentence}" for sentence in chance.sentences())]
    if discovery:
        lines += ["", "## How this circuit was found", ""]
        lines += [f"{place}. {step}" for place, step in enumerate(discovery.steps(), start=1)]
    metadata = [f"{key}: {value}" for key, value in report.metadata.items()]
    return "\n".join([*lines, "", *metadata]) + "\n"


def _viewers(model: Transformer, examples: Examples) -> list[Markup]:
    """One attention viewer for each example."""
    return elements([attention_viewer(model, examples, n) for n in range(len(examples))])


def _faithful(ablated: Ablated, report: ValidationReport) -> list[str]:
    losses = (ablated.circuit, ablated.outside, ablated.nothing)
    recovered = ablated.recovered(report.unablated)
    return [*map(str, losses), "" if recovered is None else f"{recovered:.3f}"]


def _nearest(path: PathResult) -> str:
    return "{}: {}".format(*path.nearest_alternative) if path.nearest_alternative else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]

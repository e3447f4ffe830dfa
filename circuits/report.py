"""A validation as files: report.json for programs, report.md for a notebook or an issue, report.html to look at."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup
from transformer_lens import HookedTransformer

from circuits.attention import split_attention
from circuits.circuit_file import dump_circuit
from circuits.diagram import circuit_diagram, sequence_order
from circuits.discovery import Discovery
from circuits.faithfulness import Ablated
from circuits.figures import attention_figure, content_figure, loss_figure
from circuits.files import write_together
from circuits.fixed_paths import fixed_paths
from circuits.mechanisms import REPLACEMENTS, SIMPLE
from circuits.page import figure_element, render_page
from circuits.pattern_file import PATTERNS, save_patterns
from circuits.problem import Examples, Problem
from circuits.statements import REPORT_FILES
from circuits.statistics import Statistics
from circuits.validation import ATTENTION_EXAMPLES
from circuits.validation_report import PathResult, ValidationReport
from circuits.viewer import attention_viewer

VIEWED_EXAMPLES = 3
FAITHFUL = ("all heads outside the circuit", "the circuit's heads", "all heads", "share recovered")


def write_report(
    report: ValidationReport,
    model: HookedTransformer,
    problem: Problem,
    folder: Path | str,
    chance: Statistics,
    discovery: Discovery | None = None,
) -> Path:
    """Write the three files, with how the circuit was found where it was; returns the page's path.

    The numbers of the circuit's fixed patterns, where it has some, stand in a fourth: ``verify`` needs them.

    Raises:
        BadInput: the folder cannot be written.
    """
    folder, device = Path(folder), next(model.parameters()).device
    examples = problem.examples(ATTENTION_EXAMPLES, report.seed).to(device)
    contents = (
        json.dumps(to_json(report, chance, discovery), indent=2) + "\n",
        markdown(report, chance, discovery),
        page(report, model, examples, chance, discovery),
    )
    save_patterns(report.circuit, folder / f"circuit{PATTERNS}")
    write_together({folder / name: content for name, content in zip(REPORT_FILES, contents, strict=True)})
    return folder / "report.html"


def to_json(report: ValidationReport, chance: Statistics, discovery: Discovery | None = None) -> dict[str, Any]:
    """All of a report as plain numbers and texts; docs/report.md says what each key holds."""
    document = {**report.to_json(), "chance": chance.to_json()}
    return {**document, "discovery": discovery.to_json()} if discovery else document


def page(
    report: ValidationReport,
    model: HookedTransformer,
    examples: Examples,
    chance: Statistics,
    discovery: Discovery | None = None,
) -> str:
    """The self-contained page: verdict, diagram, losses, attention from role to role, attention viewers."""
    order, group = sequence_order(examples.roles), examples.roles.main_group
    attention = split_attention(model, examples).cpu()
    fixed = fixed_paths(report.circuit, examples.roles)
    diagram = circuit_diagram(report.circuit, order, model.cfg.n_layers, report.attention, report.roles, fixed)
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
        chance=chance,
        discovery=discovery,
        content=figure_element(content_figure(report.content), "content-or-position"),
    )


def markdown(report: ValidationReport, chance: Statistics, discovery: Discovery | None = None) -> str:
    """The report as Markdown tables."""
    name = report.circuit.name or "the circuit"
    parts = list(report.full.parts)
    lines = [f"# {name}: {report.headline}", ""]
    for said in report.statements:
        lines += [f"- **{said.name}: {said.decision}**"]
        lines += [f"    - {v.step} {v.outcome}: {v.sentence}" for v in said.verdicts]
    lines += [f"- **Appendix E to the letter: {report.paper.decision}**"]
    lines += [f"    - {v.step} {v.outcome}: {v.sentence}" for v in report.paper.verdicts]
    lines += [
        "",
        f"Up to {report.n_examples} fresh examples, as many as a decision takes, seed {report.seed}, "
        f"threshold {report.threshold:g}.",
    ]
    lines += ["", "## Losses", ""]
    rows = [("unablated", report.full), ("all heads replaced", report.combined)]
    if discovery and discovery.permuted:
        rows.append(("the same discovery, role names permuted", discovery.permuted))
    table = [[label, str(loss), *(f"{loss.parts[p]:.4f}" for p in parts)] for label, loss in rows]
    lines += _table(["", "loss ± standard error", *parts], table)
    lines += ["", "## Content or position", ""]
    table = [[str(head), str(loss), report.content.kind(head)] for head, loss in report.content.alone.items()]
    lines += _table(["head", "loss with its average alone", "looks at"], table)
    lines += ["", "## The circuit's heads without the others", ""]
    table = [[one.ablation, *_faithful(one, report)] for one in report.faithfulness.by_ablation]
    lines += _table(["by", *(f"ablated: {which}" for which in FAITHFUL[:3]), FAITHFUL[3]], table)
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
            *(str(kind.get(i, "")) for kind in (p.losses, p.enabling) for i in REPLACEMENTS),
            p.needed,
            _nearest(p),
        ]
        for p in report.paths
    ]
    columns = [f"{kind}row made {i}" for kind in ("", "heads above untouched, ") for i in REPLACEMENTS]
    lines += _table(["path", *columns, "needed", "led elsewhere, at least"], table)
    if report.flow:
        lines += ["", "## Could it work?", "", *(f"- {sentence}" for sentence in report.flow_sentences())]
    lines += ["", "## Is it chance?", "", *(f"- {sentence}" for sentence in chance.sentences())]
    if discovery:
        lines += ["", "## How this circuit was found", ""]
        lines += [f"{place}. {step}" for place, step in enumerate(discovery.steps(), start=1)]
    about = [f"{key}: {value}" for key, value in report.about.items()]
    return "\n".join([*lines, "", *about]) + "\n"


def _viewers(model: HookedTransformer, examples: Examples) -> list[Markup]:
    """A viewer for each example."""
    return [attention_viewer(model, examples, n).element(f"attention-viewer-{n}") for n in range(len(examples))]


def _faithful(ablated: Ablated, report: ValidationReport) -> list[str]:
    losses = (ablated.circuit, ablated.outside, ablated.nothing)
    recovered = ablated.recovered(report.full)
    return [*map(str, losses), "" if recovered is None else f"{recovered:.3f}"]


def _nearest(path: PathResult) -> str:
    return "{}: {}".format(*path.nearest_rival) if path.nearest_rival else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]

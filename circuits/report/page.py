"""A report as one self-contained HTML page, and its short summary as Markdown. Both say the same statements."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from circuits.attention import ATTENTION_EXAMPLES, role_attention, split_attention
from circuits.checks.experiment import Experiment
from circuits.circuit_file import dump_circuit
from circuits.figures.attention_figure import attention_figure
from circuits.figures.diagram import circuit_diagram
from circuits.figures.page import figure_element, render_page
from circuits.report.loss_figures import content_figure, loss_figure
from circuits.report.report import Report, Statement
from circuits.viewer import attention_viewer, elements

VIEWED_EXAMPLES = 3
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?"}


def statements(report: Report) -> tuple[Statement, ...]:
    """Return all that a report states, in the order in which page, terminal and Markdown say it."""
    return (*report.statements, report.to_the_letter)


def losses_table(report: Report) -> pd.DataFrame:
    """The loss of the model and of the circuit, with its components."""
    losses = {"unablated": report.unablated, "all heads replaced (step 5)": report.combined}
    rows = [{"loss ± standard error": str(loss), **_rounded(loss.components)} for loss in losses.values()]
    return pd.DataFrame(rows, index=list(losses))


def faithfulness_table(report: Report) -> pd.DataFrame:
    """The losses with the circuit's heads or the others ablated, by kind of ablation."""
    rows = {}
    for kind, one in report.faithfulness.ablations.items():
        share = one.recovered(report.unablated)
        rows[kind] = {
            "outside the circuit ablated": str(one.circuit),
            "the circuit's heads ablated": str(one.outside),
            "all heads ablated": str(one.nothing),
            "share recovered": "" if share is None else f"{share:.3f}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def knockouts_table(report: Report) -> pd.DataFrame:
    """The losses of circuit and model after each knockout."""
    rows = [
        {
            "knocked out": ", ".join(map(str, out.heads)),
            "circuit": str(out.circuit),
            "model": str(out.model),
            "difference": f"{out.difference.mean:+.4f}",
        }
        for out in report.faithfulness.knockouts
    ]
    return pd.DataFrame(rows)


def paths_table(report: Report) -> pd.DataFrame:
    """The losses without each path, as texts with standard errors, and the best other target."""
    rows = {}
    for one in report.paths:
        best = min(one.retargeted.items(), key=lambda item: item[1].mean, default=None)
        first = " (first useful layer)" if one.in_first_useful_layer else ""
        rows[str(one.path)] = {
            **{f"row made {row}": str(loss) for row, loss in one.losses.items()},
            **{f"heads above intact, {row}": str(one.indirect.get(row, "")) for row in one.losses},
            "needed": f"{one.needed}{', weakly' if one.weak else ''}{first}",
            "best other target": "" if best is None else f"{best[0]}: {best[1]}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def page(report: Report, experiment: Experiment | None) -> str:
    """Return the self-contained page; without the model there is no attention on it.

    Args:
        report: the report.
        experiment: the experiment that made it; None for a report that was read from a file.
    """
    figures = {"losses": loss_figure(report), "content-or-position": content_figure(report.content_or_position)}
    viewers = []
    if experiment is not None:
        model, examples = experiment.model, experiment.test.examples.take(slice(0, ATTENTION_EXAMPLES))
        order, group = examples.roles.in_order, examples.roles.main_group
        names, attention = tuple(examples.roles), role_attention(model, examples).cpu()
        drawn = report.circuit, examples.roles, model.cfg.n_layers, attention
        figures["circuit-diagram"] = circuit_diagram(*drawn)
        if report.composition:
            figures["composition-diagram"] = circuit_diagram(*drawn, report.composition)
        figures["role-attention"] = attention_figure(split_attention(model, examples).cpu(), names, order, group)
        few = examples.take(slice(0, VIEWED_EXAMPLES))
        viewers = elements([attention_viewer(model, few, n) for n in range(len(few))])
    return render_page(
        "report.html.jinja",
        report=report,
        marks=MARKS,
        statements=statements(report),
        figures={name: figure_element(figure, name) for name, figure in figures.items()},
        tables={
            "losses": losses_table(report),
            "faithfulness": faithfulness_table(report),
            "completeness": knockouts_table(report),
            "paths": paths_table(report),
            "heads": report.heads_table().map(lambda value: f"{value:.4f}" if isinstance(value, float) else value),
        },
        viewers=viewers,
        circuit_yaml=dump_circuit(report.circuit),
    )


def markdown(report: Report) -> str:
    """Return the summary for a notebook or an issue: the statements, the losses, and the circuit's paths."""
    lines = [f"# {report.circuit.name or 'the circuit'}: {report.headline}", ""]
    for one in statements(report):
        lines.append(f"- **{one.name}: {one.decision}**")
        lines += [f"    - {verdict.name} {verdict.decision}: {verdict.sentence}" for verdict in one.verdicts]
    lines += ["", _said(report), ""]
    for title, table in {"Losses": losses_table(report), "Without one path": paths_table(report)}.items():
        lines += [f"## {title}", "", *_as_markdown(table), ""]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in report.metadata.items())]) + "\n"


def _said(report: Report) -> str:
    return (
        f"Each loss is measured on up to {report.n_examples} fresh examples, as many as its decision needs. "
        f"Seed {report.seed}, threshold {report.threshold:g}."
    )


def _rounded(components: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.4f}" for name, value in components.items()}


def _as_markdown(table: pd.DataFrame) -> Iterable[str]:
    rows = [
        ["", *table.columns],
        ["---"] * (1 + len(table.columns)),
        *([name, *row] for name, *row in table.itertuples()),
    ]
    return (f"| {' | '.join(map(str, row))} |" for row in rows)

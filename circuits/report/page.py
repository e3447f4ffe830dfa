"""A report as one self-contained HTML page, and its short summary as Markdown. Both say the same statements."""

from __future__ import annotations

import pandas as pd

from circuits.attention import ATTENTION_EXAMPLES, role_attention, split_attention
from circuits.checks.experiment import Experiment
from circuits.circuit_file import dump_circuit
from circuits.figures.attention_figure import attention_figure
from circuits.figures.diagram import circuit_diagram
from circuits.figures.page import figure_element, render_page
from circuits.report.loss_figures import content_figure, loss_figure
from circuits.report.report import Report, as_texts
from circuits.viewer.viewer import attention_viewer, elements

VIEWED_EXAMPLES = 3
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?"}


def losses_table(report: Report) -> pd.DataFrame:
    """The loss of the model and of the circuit, with its components."""
    losses = {"unablated": report.unablated, "all heads replaced (step 5)": report.combined}
    return as_texts({name: {"loss ± standard error": loss, **loss.components} for name, loss in losses.items()})


def faithfulness_table(report: Report) -> pd.DataFrame:
    """The losses with the circuit's heads or the others ablated, by kind of ablation."""
    return as_texts(
        {
            kind: {
                "outside the circuit ablated": one.circuit,
                "the circuit's heads ablated": one.outside,
                "all heads ablated": one.nothing,
                "share recovered": one.recovered(report.unablated),
            }
            for kind, one in report.faithfulness.ablations.items()
        }
    )


def knockouts_table(report: Report) -> pd.DataFrame:
    """The losses of circuit and model after each knockout."""
    return as_texts(
        {
            ", ".join(map(str, out.heads)): {
                "circuit": out.circuit,
                "model": out.model,
                "difference": f"{out.difference.mean:+.4f}",
            }
            for out in report.faithfulness.knockouts
        }
    )


def heads_table(report: Report) -> pd.DataFrame:
    """The loss with each named head alone replaced, by mechanism (step 3)."""
    losses = {one.head: {name: loss.mean for name, loss in one.losses.items()} for one in report.heads}
    return as_texts(
        {
            str(one.head): {"hypothesis": one.hypothesis, **losses[one.head], "alone": one.decision}
            for one in report.heads
        }
    )


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
        figures={name: figure_element(figure, name) for name, figure in figures.items()},
        tables={
            "losses": losses_table(report),
            "faithfulness": faithfulness_table(report),
            "completeness": knockouts_table(report),
            "paths": report.paths_table(),
            "heads": heads_table(report),
        },
        viewers=viewers,
        circuit_yaml=dump_circuit(report.circuit),
    )


def markdown(report: Report) -> str:
    """Return the summary for a notebook or an issue: the statements, the losses, and the circuit's paths."""
    lines = [f"# {report.circuit.name or 'the circuit'}: {report.headline}", ""]
    for one in report.all_statements:
        lines.append(f"- **{one.name}: {one.decision}**")
        lines += [f"    - {verdict.name} {verdict.decision}: {verdict.sentence}" for verdict in one.verdicts]
    lines += ["", f"Each loss is measured on up to {report.n_examples} fresh examples, as many as its decision needs."]
    lines += [f"Seed {report.seed}, threshold {report.threshold:g}.", ""]
    for title, table in {"Losses": losses_table(report), "Without one path": report.paths_table()}.items():
        rows = [["", *table.columns], ["---"] * (1 + len(table.columns)), *table.itertuples()]
        lines += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in report.metadata.items())]) + "\n"

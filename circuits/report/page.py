"""A report as one self-contained HTML page, and its short summary as Markdown. Both say the same statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import Any

import pandas as pd
from plotly import express

from circuits.attention import ATTENTION_EXAMPLES, role_attention
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import Removal
from circuits.circuit_file import dump_circuit
from circuits.discovery.content_or_position import ContentOrPosition
from circuits.figures.attention_figure import attention_figure
from circuits.figures.diagram import circuit_diagram
from circuits.figures.page import figure_element, render_page
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss
from circuits.report.report import Report
from circuits.utils.plotting import go
from circuits.viewer import Viewer, attention_frame, elements

VIEWED_EXAMPLES = 3
WAYS = ("uniform", "identity", "mean", "idle")  # of removing a part
MARKS = {"holds": "✓", "fails": "✗", "undecided": "?"}


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """Return the tables of a report by their place on the page."""
    faithful = report.faithfulness
    losses: dict[str, Loss | DecidedLoss] = {
        "the model": report.scale.own,
        "all heads replaced or idle": report.combined,
        **{f"the circuit's heads alone ({kind})": one for kind, one in faithful.ablations.items()},
        "heads with paths alone (pattern-mean)": faithful.patterns,
        **({"as many random heads alone, the best": faithful.random_heads[0]} if faithful.random_heads else {}),
        "all heads at their average patterns": faithful.positions,
        "all heads idle": report.scale.none,
    }
    rows: dict[str, dict[str, dict[str, Any]]] = {
        "losses": {name: _loss_row(one, report) for name, one in losses.items()},
        "completeness": {
            ", ".join(map(str, out.heads)): {
                "circuit": out.of_circuit,
                "model": out.of_model,
                "difference, share of the range": f"{out.difference:+.4f}",
            }
            for out in report.knockouts
        },
        "heads": {str(head): dict(losses) for head, losses in (report.paper.alone if report.paper else {}).items()},
        "paths": {_part(report, one): _part_row(report, one) for one in _ranked(report)},
    }
    return {name: pd.DataFrame.from_dict(named, orient="index").astype(object) for name, named in rows.items()}


def _loss_row(one: Loss | DecidedLoss, report: Report) -> dict[str, Any]:
    loss = one.loss if isinstance(one, DecidedLoss) else one
    return {
        "loss ± standard error": f"{loss.mean:.4f} ± {loss.standard_error:.4f}",
        "share of the range": f"{report.scale.share(loss):.4f}",
        **(loss.measures or loss.components),
    }


def _part_row(report: Report, one: Removal) -> dict[str, Any]:
    targets = report.uniqueness.targets.get(one.path, {}) if one.path else {}
    best = min(targets.items(), key=lambda item: item[1].loss.mean, default=None)
    return {
        "matters": one.needed,
        **{_way(way): one.losses.get(way) for way in WAYS},
        **{f"with heads intact, {way}": loss for way, loss in one.intact.items()},
        "best other target": None if best is None else f"{best[0]}: {best[1].loss}",
        "attends on average (seen, not tested)": report.attends.get(one.head),
        "attention to the first token": report.first.get(one.head),
    }


def _part(report: Report, one: Removal) -> str:
    """Return what a row is about: a path, or a head with its mechanism."""
    return str(one) if one.path or "mean" not in one.losses else f"{one.head}: {report.circuit.heads[one.head]}"


def _ranked(report: Report) -> list[Removal]:
    """Return the parts of a circuit; of a model with many heads, what costs most first."""
    if not report.first:
        return [*report.parts]
    return sorted(report.parts, key=lambda one: -max(loss.excess for loss in one.losses.values()))


def _way(way: str) -> str:
    return {"idle": "made idle", "mean": "at its average pattern"}.get(way, f"row made {way}")


def _as_texts(table: pd.DataFrame) -> pd.DataFrame:
    table = table.dropna(axis="columns", how="all")
    return table.map(_as_text)


def _as_text(value: Any) -> str:
    if isinstance(value, DecidedLoss):
        return str(value.loss)
    return "" if pd.isna(value) else f"{value:.4f}" if isinstance(value, float) else str(value)


def page(report: Report, experiment: Experiment | None) -> str:
    """Return the self-contained page; without the model there is no attention on it.

    Args:
        report: the report.
        experiment: the experiment that made it; None for a report that was read from a file.
    """
    figures = {"losses": loss_figure(report)}
    if report.discovery and report.discovery.content_or_position:
        figures["content-or-position"] = content_figure(report.discovery.content_or_position)
    viewers = []
    if experiment is not None:
        model, examples = experiment.model, experiment.test.examples.take(slice(0, ATTENTION_EXAMPLES))
        order, group = examples.roles.in_order, examples.roles.main_group
        names, attention = tuple(examples.roles), role_attention(model, examples).cpu()
        drawn = report.circuit, examples.roles, model.cfg.n_layers, attention
        figures["circuit-diagram"] = circuit_diagram(*drawn)
        if report.composition:
            figures["composition-diagram"] = circuit_diagram(*drawn, report.composition)
        heads = [one.head for one in _ranked(report)] if experiment.many else None  # of many, the circuit's
        split = role_attention(model, examples, group).cpu()
        figures["role-attention"] = attention_figure(split, names, order, group, [*dict.fromkeys(heads or ())])
        few = examples.take(slice(0, VIEWED_EXAMPLES))
        frames = [attention_frame(model, few, n, heads=heads) for n in range(len(few))]
        viewers = elements([Viewer({"": (frame,)}) for frame in frames])
    return render_page(
        "report.html.jinja",
        report=report,
        marks=MARKS,
        figures={name: figure_element(figure, name) for name, figure in figures.items()},
        tables={name: _as_texts(table) for name, table in tables(report).items()},
        viewers=viewers,
        circuit_yaml=dump_circuit(report.circuit),
    )


def markdown(report: Report) -> str:
    """Return the summary for a notebook or an issue: the statements, the losses, and the circuit's paths."""
    lines = [f"# {report.circuit.name or 'the circuit'}: {report.headline}", ""]
    for one in report.all_statements:
        lines.append(f"- **{one.name}: {one.decision}**")
        lines += [f"    - {verdict.name} {verdict.decision}: {verdict.sentence}" for verdict in one.verdicts]
    lines += ["", *(f"- {note}" for note in report.notes)]
    lines += ["", f"Each loss is measured on up to {report.n_examples} fresh examples, as many as its decision needs."]
    lines += [f"Seed {report.seed}, threshold {report.threshold:g}.", ""]
    for title, name in {"Losses": "losses", "Without one path or positional head": "paths"}.items():
        table = _as_texts(tables(report)[name])
        rows = [["", *table.columns], ["---"] * (1 + len(table.columns)), *table.itertuples()]
        lines += [f"## {title}", "", *(f"| {' | '.join(row)} |" for row in rows), ""]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in report.metadata.items())]) + "\n"


def loss_figure(report: Report) -> go.Figure:
    """Plot the loss without each path or positional head, beside model and circuit; bars are two standard errors."""
    rows = [
        ("model and circuit", "the model", report.scale.own),
        ("model and circuit", "all heads replaced or idle", report.combined.loss),
        ("model and circuit", "all heads idle", report.scale.none),
    ]
    for way in WAYS:
        rows += [(_way(way), f"without {one}", one.losses[way].loss) for one in _ranked(report) if way in one.losses]
    limit = report.scale.own.mean + report.threshold * report.scale.width
    return _figure("Loss without each path and each positional head", rows, {f"threshold {limit:.3g}": limit})


def content_figure(heads: ContentOrPosition) -> go.Figure:
    """Plot the loss with one head at a time replaced with its average pattern; bars are two standard errors."""
    rows = [(f"looks at {heads.looks_at(head)}", str(head), one.loss) for head, one in heads.alone.items()]
    marks = {"unablated": heads.unablated.mean}
    return _figure("Content or position: one head replaced with its average pattern", rows, marks)


def _figure(title: str, rows: Sequence[tuple[str, str, Loss]], marks: Mapping[str, float]) -> go.Figure:
    """Plot losses by kind and label, with labelled vertical lines; plotly's own label would stand at 10 ** value."""
    x = "loss (logarithmic)"
    points = [{"kind": kind, "": label, x: loss.mean, "bar": 2 * loss.standard_error} for kind, label, loss in rows]
    labels = [*dict.fromkeys(label for _, label, _ in rows)]
    figure = express.scatter(
        pd.DataFrame(points), x=x, y="", error_x="bar", color="kind", symbol="kind", category_orders={"": labels},
        log_x=True, title=title, template="plotly_white", height=220 + 26 * len(labels),
    )  # fmt: skip
    for text, value in marks.items():
        figure.add_vline(x=value, line_dash="dash")
        if value > 0:
            figure.add_annotation(x=log10(value), y=1.0, yref="paper", yanchor="bottom", text=text, showarrow=False)
    legend = {"title": "", "orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    return figure.update_traces(marker_size=10).update_layout(legend=legend, margin={"t": 80, "b": 110})

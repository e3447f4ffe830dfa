"""A report as one self-contained HTML page, and its short summary as Markdown. Both say the same statements."""

from __future__ import annotations

from math import log10
from typing import Any

import pandas as pd
from markupsafe import Markup
from plotly import express

from circuits.attention import ATTENTION_EXAMPLES, role_attention
from circuits.checks.experiment import Experiment
from circuits.checks.minimality import Removal
from circuits.circuit_file import dump_circuit
from circuits.figures.diagram import circuit_diagram
from circuits.figures.page import figure_element, render, render_page
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import DecidedLoss
from circuits.report.report import Report
from circuits.report.step_by_step import step_by_step
from circuits.report.strip import MARKS, strip
from circuits.utils.plotting import go
from circuits.viewer import Viewer, attention_frame, elements

VIEWED_EXAMPLES = 3
WAYS = ("uniform", "identity", "mean", "idle")  # of removing a part


def tables(report: Report) -> dict[str, pd.DataFrame]:
    """Return the tables of a report by their place on the page."""
    faithful, nothing = report.faithfulness, "faithful" in report.says_nothing  # no head is ablated
    losses: dict[str, Loss | DecidedLoss] = {
        "the model": report.scale.own,
        "all heads replaced or idle": report.combined,
        **({} if nothing else {f"the circuit's heads alone ({kind})": one for kind, one in faithful.ablations.items()}),
        "heads that look alone (pattern-mean)": faithful.patterns,
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


def as_texts(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of texts, without its empty columns."""
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
    viewers, diagram, stories = [], "", None
    if experiment is not None:
        model, examples = experiment.model, experiment.test.examples.take(slice(0, ATTENTION_EXAMPLES))
        attention = role_attention(model, examples).cpu()
        diagram = Markup(circuit_diagram(report.circuit, examples.roles, attention, report.composition)._repr_html_())
        heads = [one.head for one in _ranked(report)] if experiment.many else None  # of many, the circuit's
        stories = step_by_step(model, experiment.task, report.circuit, seed=report.seed, averages=experiment.averages)
        few = examples.take(slice(0, VIEWED_EXAMPLES))
        frames = [attention_frame(model, few, n, heads=heads) for n in range(len(few))]
        viewers = elements([Viewer({"": (frame,)}) for frame in frames])
    return render_page(
        "report.html.jinja",
        report=report,
        strip=strip(report),
        marks=MARKS,
        stories=stories,
        diagram=diagram,
        losses=figure_element(loss_figure(report), "losses"),
        tables={name: as_texts(table) for name, table in tables(report).items()},
        viewers=viewers,
        circuit_yaml=dump_circuit(report.circuit),
    )


def markdown(report: Report) -> str:
    """Return the summary for a notebook or an issue: the statements, the losses, and the circuit's paths."""
    shown = {"Losses": "losses", "Without one path or positional head": "paths"}
    all_tables = {title: as_texts(tables(report)[name]) for title, name in shown.items()}
    return render("report.md.jinja", report=report, strip=strip(report), tables=all_tables)


def loss_figure(report: Report) -> go.Figure:
    """Plot the loss without each path or positional head, beside model and circuit; bars are two standard errors."""
    rows = [
        ("model and circuit", "the model" + " (0)" * (not report.scale.own.mean), report.scale.own),
        ("model and circuit", "all heads replaced or idle", report.combined.loss),
        ("model and circuit", "all heads idle", report.scale.none),
    ]
    for way in WAYS:
        rows += [(_way(way), f"without {one}", one.losses[way].loss) for one in _ranked(report) if way in one.losses]
        with_heads = [(f"without {one}", one.intact[way].loss) for one in _ranked(report) if way in one.intact]
        rows += [(f"{_way(way)}, heads intact", label, loss) for label, loss in with_heads]
    log, title = all(loss.mean >= 0 for *_, loss in rows), "Loss without each path and each positional head"
    x = "loss (logarithmic)" if log else "loss"
    points = [{"kind": kind, "": label, x: loss.mean, "bar": 2 * loss.standard_error} for kind, label, loss in rows]
    labels = [*dict.fromkeys(label for _, label, _ in rows)]
    figure = express.scatter(
        pd.DataFrame(points), x=x, y="", error_x="bar", color="kind", symbol="kind", category_orders={"": labels},
        log_x=log, title=title, template="plotly_white", height=220 + 26 * len(labels),
    )  # fmt: skip
    low, least = report.threshold * report.scale.width, report.settings.least * report.scale.width
    limits = {"threshold": report.scale.own.mean + low, "least effect": report.combined.loss.mean + least}
    for n, (name, limit) in enumerate(limits.items()):
        figure.add_vline(x=limit, line_dash=("dash", "dot")[n])  # plotly's own label would stand at 10 ** limit
        at = {"x": log10(limit) if log else limit, "y": 1.0, "yref": "paper", "yanchor": "bottom"}
        figure.add_annotation(text=f"{name} {limit:.3g}", showarrow=False, xanchor=("left", "right")[n], **at)
    legend = {"title": "", "orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"}
    return figure.update_traces(marker_size=10).update_layout(legend=legend, margin={"t": 80, "b": 110})

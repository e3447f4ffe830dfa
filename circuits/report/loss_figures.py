"""Figures of a validation: losses with error bars."""

from collections.abc import Mapping, Sequence
from math import log10

import pandas as pd
from plotly import express

from circuits.checks.content_or_position import ContentOrPosition
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.report.report import Report
from circuits.utils.plotting import go


def loss_figure(report: Report) -> go.Figure:
    """Plot the loss without each path, beside the unablated and the combined loss; bars are two standard errors."""
    rows = [
        ("model and circuit", "unablated", report.unablated),
        ("model and circuit", "all heads replaced", report.combined),
    ]
    rows += [
        (f"row made {row}", f"without {one.path}", one.losses[row]) for row in REPLACEMENTS for one in report.paths
    ]
    return _figure("Loss without each attention path", rows, {f"threshold {report.threshold:g}": report.threshold})


def content_figure(heads: ContentOrPosition) -> go.Figure:
    """Plot the loss with one head at a time replaced with its average pattern; bars are two standard errors."""
    rows = [(f"looks at {heads.looks_at(head)}", str(head), loss) for head, loss in heads.alone.items()]
    marks = {f"threshold {heads.threshold:g}": heads.threshold, "unablated": heads.unablated.mean}
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

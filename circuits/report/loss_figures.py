"""Figures of a validation: losses with error bars."""

from collections.abc import Sequence
from math import log10

from circuits.checks.content_or_position import ContentOrPosition
from circuits.losses.loss import Loss
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.report.report import Report
from circuits.utils.plotting import go


def loss_figure(report: Report) -> go.Figure:
    """Plot the loss without each path, beside the unablated and the combined loss; bars are two standard errors."""
    figure = go.Figure()
    figure.add_trace(
        _points(
            "model and circuit", [("unablated", report.unablated), ("all heads replaced", report.combined)], "circle"
        )
    )
    for instead, symbol in zip(REPLACEMENTS, ("triangle-up", "square"), strict=True):
        rows = [(f"without {p.path}", p.losses[instead]) for p in report.paths]
        figure.add_trace(_points(f"row made {instead}", rows, symbol))
    _mark(figure, report.threshold, f"threshold {report.threshold:g}", "dash")
    figure.update_layout(
        title={"text": "Loss without each attention path"},
        xaxis={"title": "loss (logarithmic)", "type": "log"},
        yaxis={"autorange": "reversed"},
        template="plotly_white",
        height=160 + 30 * (2 + len(report.paths)),
        margin={"l": 240, "t": 60},
        legend={"orientation": "h", "y": -0.25},
    )
    return figure


def content_figure(found: ContentOrPosition) -> go.Figure:
    """Plot the loss with one head at a time replaced with its average pattern; bars are two standard errors."""
    figure = go.Figure()
    for kind, heads, symbol in (("content", found.content, "diamond"), ("position", found.positional, "circle")):
        rows = [(str(head), found.alone[head]) for head in heads]
        figure.add_trace(_points(f"looks at {kind}", rows, symbol))
    _mark(figure, found.threshold, f"threshold {found.threshold:g}", "dash")
    _mark(figure, found.unablated.mean, "unablated", "dot")
    figure.update_layout(
        title={"text": "Content or position: one head replaced with its average pattern"},
        xaxis={"title": "loss (logarithmic)", "type": "log"},
        yaxis={"autorange": "reversed", "categoryorder": "array", "categoryarray": [*map(str, found.alone)]},
        template="plotly_white",
        height=220 + 22 * len(found.alone),
        margin={"t": 80, "b": 110},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
    )
    return figure


def _mark(figure: go.Figure, value: float, text: str, dash: str) -> None:
    """Draw a labelled vertical line on a logarithmic axis; plotly's own label would stand at 10 ** value."""
    figure.add_vline(x=value, line_dash=dash)
    if value > 0:
        figure.add_annotation(x=log10(value), y=1.0, yref="paper", yanchor="bottom", text=text, showarrow=False)


def _points(name: str, rows: Sequence[tuple[str, Loss]], symbol: str) -> go.Scatter:
    return go.Scatter(
        name=name,
        x=[loss.mean for _, loss in rows],
        y=[label for label, _ in rows],
        error_x={"type": "data", "array": [2 * loss.standard_error for _, loss in rows]},
        mode="markers",
        marker={"symbol": symbol, "size": 10},
        hovertemplate="%{y}: %{x:.4f}<extra></extra>",
    )

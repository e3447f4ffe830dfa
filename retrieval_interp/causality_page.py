"""When symbols are learned with paths held fast, as one offline page."""

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.files import write_atomically
from circuits.page import figure_element, render_page
from retrieval_interp.causality import CONDITIONS, SIGNS, Outcome, sentences, summary

PAGE = "causality.html"
TITLES = {"learned": "partial loss of {} below 0.5", "fetched": "a head leads the query to {}"}


def emergence_figure(outcomes: Sequence[Outcome]) -> go.Figure:
    """For every symbol and sign: each run a dot, the mean a bar; a cross is a run in which it never emerged."""
    symbols, conditions = list(outcomes[0].learned), list(CONDITIONS)
    titles = [TITLES[sign].format(symbol) for sign in SIGNS for symbol in symbols]
    figure = make_subplots(len(SIGNS), len(symbols), subplot_titles=titles, shared_xaxes=True, shared_yaxes=True)
    table = summary(outcomes).set_index(["condition", "sign", "symbol"])
    for row, sign in enumerate(SIGNS, start=1):
        for column, symbol in enumerate(symbols, start=1):
            for emerged, marker in ((True, "circle"), (False, "x")):
                shown = [o for o in outcomes if (o.at(sign, symbol) is not None) == emerged]
                dots = go.Scatter(
                    x=[outcome.waited(sign, symbol) for outcome in shown],
                    y=[outcome.condition for outcome in shown],
                    mode="markers",
                    marker={"symbol": marker, "size": 9, "opacity": 0.6, "color": plotly.colors.qualitative.Safe[0]},
                    name="one run" if emerged else "never, so long was waited",
                    showlegend=row == column == 1,
                    customdata=[outcome.seed for outcome in shown],
                    hovertemplate="%{y}, seed %{customdata}: step %{x:.0f}<extra></extra>",
                )
                figure.add_trace(dots, row=row, col=column)
            means = go.Scatter(
                x=[table.loc[(condition, sign, symbol), "step"] for condition in conditions],
                y=conditions,
                mode="markers",
                marker={"symbol": "line-ns-open", "size": 18, "color": "black", "line": {"width": 3}},
                name="mean",
                showlegend=row == column == 1,
                hovertemplate="%{y}, mean: step %{x:.0f}<extra></extra>",
            )
            figure.add_trace(means, row=row, col=column)
    figure.update_xaxes(title_text="step", row=len(SIGNS))
    figure.update_xaxes(rangemode="tozero")
    figure.update_yaxes(categoryorder="array", categoryarray=conditions[::-1])
    figure.update_layout(template="plotly_white", height=620, margin={"t": 50, "l": 110})
    return figure


def write_causality(outcomes: Sequence[Outcome], folder: Path, command: str) -> Path:
    """Write the page; returns its path.

    Raises:
        BadInput: the folder cannot be written.
    """
    page = render_page(
        "causality.html.jinja",
        "retrieval_interp",
        preset=outcomes[0].preset,
        command=command,
        conditions=CONDITIONS,
        sentences=sentences(outcomes),
        table=summary(outcomes),
        figure=figure_element(emergence_figure(outcomes), "causality"),
    )
    write_atomically(folder / PAGE, page)
    return folder / PAGE

"""When symbols are learned with attention paths forced or forbidden, as one offline page."""

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from retrieval_interp.experiments.interventions import CONDITIONS, Outcome, sentences, summary
from retrieval_interp.results import write_results
from retrieval_interp.training.curves import EMERGED

PAGE = "interventions.html"


def learned_figure(outcomes: Sequence[Outcome]) -> go.Figure:
    """Draw one panel for each symbol: a dot for each run, a cross if it never learned it, a bar for the mean."""
    symbols, conditions = list(outcomes[0].learned), list(CONDITIONS)
    titles = [f"partial loss of {symbol} below {EMERGED:g}" for symbol in symbols]
    figure = make_subplots(1, len(symbols), subplot_titles=titles, shared_yaxes=True)
    table = summary(outcomes).set_index(["condition", "symbol"])
    for column, symbol in enumerate(symbols, start=1):
        for learned, marker in ((True, "circle"), (False, "x")):
            shown = [outcome for outcome in outcomes if (outcome.learned[symbol] is not None) == learned]
            dots = go.Scatter(
                x=[outcome.steps_to_learn(symbol) for outcome in shown],
                y=[outcome.condition for outcome in shown],
                mode="markers",
                marker={"symbol": marker, "size": 9, "opacity": 0.6, "color": plotly.colors.qualitative.Safe[1]},
                name="one run" if learned else "not learned within these steps",
                showlegend=column == 1,
                customdata=[outcome.seed for outcome in shown],
                hovertemplate="%{y}, seed %{customdata}: step %{x:.0f}<extra></extra>",
            )
            figure.add_trace(dots, row=1, col=column)
        means = go.Scatter(
            x=[table.loc[(condition, symbol), "step"] for condition in conditions],
            y=conditions,
            mode="markers",
            marker={"symbol": "line-ns-open", "size": 18, "color": "black", "line": {"width": 3}},
            name="mean",
            showlegend=column == 1,
            hovertemplate="%{y}, mean: step %{x:.0f}<extra></extra>",
        )
        figure.add_trace(means, row=1, col=column)
    figure.update_xaxes(title_text="step", rangemode="tozero")
    figure.update_yaxes(categoryorder="array", categoryarray=conditions[::-1])
    figure.update_layout(template="plotly_white", height=340, margin={"t": 40, "l": 110})
    return figure


def write_interventions(outcomes: Sequence[Outcome], folder: Path, command: str) -> Path:
    """Write the page and return its path.

    Raises:
        BadInput: the folder cannot be written.
    """
    return write_results(
        folder,
        "interventions",
        command,
        {},
        {"interventions": learned_figure(outcomes)},
        preset=outcomes[0].preset,
        conditions=CONDITIONS,
        sentences=sentences(outcomes),
        table=summary(outcomes),
    )

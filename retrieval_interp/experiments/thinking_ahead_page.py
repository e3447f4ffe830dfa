"""What arises in ordinary and in myopic training, as one offline page with its tables."""

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.experiments.thinking_ahead import CONDITIONS, Outcome, arose, sentences, summary
from retrieval_interp.results import write_results
from retrieval_interp.training.curves import EMERGED

FILES = (RUNS, "losses.csv", "arose.csv", "thinking_ahead.html")


def losses_figure(outcomes: Sequence[Outcome]) -> go.Figure:
    """Draw one panel for each training loss: a dot for each run at its loss on fresh examples."""
    components = list(outcomes[0].losses)
    figure = make_subplots(1, len(components), subplot_titles=components, shared_yaxes=True, horizontal_spacing=0.03)
    for column, component in enumerate(components, start=1):
        dots = go.Scatter(
            x=[outcome.losses[component] for outcome in outcomes], y=[outcome.condition for outcome in outcomes],
            mode="markers", marker={"size": 9, "opacity": 0.6, "color": plotly.colors.qualitative.Safe[1]},
            customdata=[outcome.seed for outcome in outcomes], showlegend=False,
            hovertemplate="%{y}, seed %{customdata}: %{x:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(dots, row=1, col=column)
        figure.add_vline(x=EMERGED, line={"width": 1, "dash": "dot"}, row=1, col=column)
    figure.update_xaxes(title_text="squared error", rangemode="tozero")
    figure.update_yaxes(categoryorder="array", categoryarray=list(CONDITIONS)[::-1])
    return figure.update_layout(template="plotly_white", height=300, margin={"t": 40, "l": 170})


def write_thinking_ahead(outcomes: Sequence[Outcome], folder: Path, command: str) -> Path:
    """Write the page and its tables, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    tables = {"losses": summary(outcomes).round(5), "arose": arose(outcomes).round(5)}
    contents = {"preset": outcomes[0].preset, "sentences": sentences(outcomes), "tables": tables, "learned": EMERGED}
    return write_results(
        folder, "thinking_ahead", command, tables, {"losses": losses_figure(outcomes)}, **contents
    )  # fmt: skip

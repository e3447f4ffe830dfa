"""The hops reached with words, thoughts and pauses, as one offline page with its table."""

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go

from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.experiments.thinking_without_words import (
    AT_ONCE,
    CONDITIONS,
    CUT,
    Outcome,
    allowed,
    sentences,
    summary,
)
from retrieval_interp.results import write_results
from retrieval_interp.training.curves import EMERGED

FILES = (RUNS, "hops.csv", "thinking_without_words.html")
COLOURS = dict(zip(CONDITIONS, plotly.colors.qualitative.Safe, strict=False))


def hops_figure(outcomes: Sequence[Outcome]) -> go.Figure:
    """Draw the hops reached after every number of steps: a dot for each run, and what information flow allows."""
    figure = go.Figure()
    for place, condition in enumerate(CONDITIONS):
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        last = 1 if condition == AT_ONCE else own[0].n_steps
        style = {"name": condition, "legendgroup": condition}
        line = go.Scatter(
            x=[*range(last)], y=allowed(condition, own[0].n_steps)[:last], mode="lines", showlegend=False,
            line={"color": COLOURS[condition], "dash": "dot"}, hoverinfo="skip", **style,
        )  # fmt: skip
        dots = go.Scatter(
            x=[s + 0.06 * (place - 1.5) + 0.01 * outcome.seed for outcome in own for s in range(last)],
            y=[k for outcome in own for k in outcome.reached[:last]], mode="markers",
            marker={"color": COLOURS[condition], "size": 8, "opacity": 0.6},
            customdata=[outcome.seed for outcome in own for _ in range(last)],
            hovertemplate=f"{condition}, seed %{{customdata}}: %{{y}} hops<extra></extra>", **style,
        )  # fmt: skip
        figure.add_traces([line, dots])
    figure.update_xaxes(title_text="steps: words, thoughts or pauses", dtick=1)
    figure.update_yaxes(title_text="hops reached", dtick=1, range=[-0.2, outcomes[0].n_steps + 0.3])
    return figure.update_layout(template="plotly_white", height=380, margin={"t": 30})


def write_thinking_without_words(outcomes: Sequence[Outcome], folder: Path, command: str) -> Path:
    """Write the page and its table, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    tables = {"hops": summary(outcomes).round(5)}
    figures = {"hops": hops_figure(outcomes)}
    contents = {"n_steps": outcomes[0].n_steps, "sentences": sentences(outcomes), "rows": tables["hops"]}
    return write_results(
        folder, "thinking_without_words", command, tables, figures, learned=EMERGED, cut=CUT, **contents
    )  # fmt: skip

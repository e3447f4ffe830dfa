"""The results of the depth sweep, with the predictions of information flow, as a table and one offline page."""

from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from retrieval_interp.experiments.depth_sweep import LEARNED, NOTHING_KNOWN, Run, sentences, table
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.results import write_results
from retrieval_interp.theory.depth import layers_by_position, layers_causal

FILES = (RUNS, "depth_sweep.csv", "depth_sweep.html")
COLOURS = plotly.colors.qualitative.Safe


def depth_sweep_figure(runs: Sequence[Run]) -> go.Figure:
    """Draw the loss by the number of layers: one panel for each condition, a dot for each run, a line for the means.

    A thin vertical line marks the number of layers from which information flow allows a symbol: solid by the paper's
    assumptions, dotted if pairs are fetched by position.
    """
    conditions = list(dict.fromkeys(run.point.condition for run in runs))
    n_steps = runs[0].n_steps
    symbols = [f"x{k}" for k in range(1, n_steps + 1)]
    columns = 2 if len(conditions) > 1 else 1
    rows = -(-len(conditions) // columns)
    titles = [*map(str, conditions)]
    figure = make_subplots(rows, columns, subplot_titles=titles, shared_yaxes=True, vertical_spacing=0.12)
    for place, condition in enumerate(conditions):
        row, column = place // columns + 1, place % columns + 1
        own = [run for run in runs if run.point.condition == condition]
        layers = sorted({run.n_layers for run in own})
        for k, symbol in enumerate(symbols):
            shift = 0.06 * (k - (len(symbols) - 1) / 2)  # so that the dots of different symbols do not overlap
            shared = {"legendgroup": symbol, "marker": {"color": COLOURS[k], "symbol": k, "size": 9}}
            losses = {n: [run.losses[symbol] for run in own if run.n_layers == n] for n in layers}
            dots = go.Scatter(
                x=[n + shift for n in layers for _ in losses[n]],
                y=[loss for n in layers for loss in losses[n]],
                mode="markers",
                name=symbol,
                showlegend=place == 0,
                hovertemplate=f"{symbol}: %{{y:.3f}}<extra></extra>",
                **shared,
            )
            means = go.Scatter(
                x=[n + shift for n in layers],
                y=[sum(losses[n]) / len(losses[n]) for n in layers],
                mode="lines",
                line={"color": COLOURS[k]},
                showlegend=False,
                hoverinfo="skip",
                legendgroup=symbol,
            )
            figure.add_trace(dots, row=row, col=column)
            figure.add_trace(means, row=row, col=column)
            for needed, dash in ((layers_causal(k + 1), "solid"), (layers_by_position(k + 1), "dot")):
                figure.add_vline(
                    x=needed - 0.25 + shift, line={"color": COLOURS[k], "dash": dash, "width": 1}, row=row, col=column
                )
    figure.add_hline(y=NOTHING_KNOWN, line={"color": "#999999", "dash": "dash", "width": 1})
    figure.update_xaxes(title_text="layers", row=rows)
    figure.update_xaxes(tickvals=sorted({run.n_layers for run in runs}))
    figure.update_yaxes(title_text="squared error", rangemode="tozero", col=1)
    return figure.update_layout(template="plotly_white", height=110 + 250 * rows, margin={"t": 50})


def write_depth_sweep(runs: Sequence[Run], folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    rows = table(runs)
    by_hops: dict[int, list[Run]] = {}
    for run in runs:
        by_hops.setdefault(run.n_steps, []).append(run)
    return write_results(
        folder,
        "depth_sweep",
        command,
        {"depth_sweep": rows},
        {f"depth_sweep{n}": depth_sweep_figure(own) for n, own in by_hops.items()},
        learned=LEARNED,
        nothing=NOTHING_KNOWN,
        sentences=sentences(runs),
        hops=[*by_hops],
        table=rows,
    )

"""A model and its circuit under distribution shifts, as one offline page with its table."""

from pathlib import Path

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from retrieval_interp.experiments.beyond_training import RIGHT, BeyondTraining
from retrieval_interp.results import write_results


def accuracy_figure(found: BeyondTraining) -> go.Figure:
    """Draw the accuracy by shift and symbol: the model, and the circuit in place; a cross marks a wrong prediction."""
    names = [one.shift.name for one in found.outcomes]
    symbols = list(found.outcomes[0].model)
    figure = make_subplots(
        1, 2, subplot_titles=["the model", "the circuit in the place of all attention"], shared_yaxes=True,
        horizontal_spacing=0.04,
    )  # fmt: skip
    for column, run in enumerate(("model", "circuit"), start=1):
        scores = [getattr(one, run) or {} for one in found.outcomes]
        heat = go.Heatmap(
            z=[[own[symbol].total.accuracy.mean if own else None for symbol in symbols] for own in scores],
            x=symbols, y=names, coloraxis="coloraxis", hoverongaps=False,
            hovertemplate="%{y}, %{x}: accuracy %{z:.3f}<extra></extra>",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
    wrong = [(one.shift.name, symbol) for one in found.outcomes for symbol in symbols
             if one.agreement(symbol) == "disagrees"]  # fmt: skip
    crosses = go.Scatter(
        x=[symbol for _, symbol in wrong], y=[name for name, _ in wrong], mode="markers", showlegend=False,
        marker={"symbol": "x-thin", "size": 11, "line": {"width": 2, "color": "black"}}, hoverinfo="skip",
    )  # fmt: skip
    figure.add_trace(crosses, row=1, col=1)
    figure.update_yaxes(autorange="reversed", type="category", categoryorder="array", categoryarray=names)
    return figure.update_layout(
        coloraxis={"colorscale": "Blues", "cmin": 0, "cmax": 1, "colorbar": {"title": {"text": "accuracy"}}},
        template="plotly_white", height=120 + 26 * len(names), margin={"t": 40, "b": 40, "l": 140},
    )  # fmt: skip


def write_beyond_training(found: BeyondTraining, name: str, folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    tables, figures = {"beyond_training": found.table().round(5)}, {"accuracy": accuracy_figure(found)}
    return write_results(folder, "beyond_training", command, tables, figures, name=name, found=found, right=RIGHT)

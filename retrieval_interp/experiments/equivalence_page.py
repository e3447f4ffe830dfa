"""The circuits that are equivalent to a model's circuit, as one offline page with its table."""

from pathlib import Path

import plotly.graph_objects as go

from circuits.discovery.equivalence_result import Equivalence
from retrieval_interp.results import write_results

FILES = ("equivalence.csv", "equivalence.html")


def circuits_figure(found: Equivalence) -> go.Figure:
    """Draw which circuit (a column) has which path (a row), with its loss."""
    paths = [path for path in found.candidates if found.times[path]]
    losses = [f"{place + 1}: loss {one.loss.mean:.4f}" for place, one in enumerate(found.circuits)]
    heat = go.Heatmap(
        z=[[int(path in one.paths) for one in found.circuits] for path in paths],
        x=losses, y=[*map(str, paths)], colorscale=[[0, "#eeeeee"], [1, "#1f4e79"]], zmin=0, zmax=1, showscale=False,
        xgap=2, ygap=2, hovertemplate="%{x}<br>%{y}<extra></extra>",
    )  # fmt: skip
    figure = go.Figure(heat)
    figure.update_yaxes(autorange="reversed", type="category")
    figure.update_xaxes(type="category", side="top", title_text="circuit")
    return figure.update_layout(
        template="plotly_white", height=160 + 26 * len(paths), margin={"t": 90, "b": 20, "l": 260}
    )


def write_equivalence(found: Equivalence, name: str, folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    tables, figures = {"equivalence": found.table().round(5)}, {"circuits": circuits_figure(found)}
    return write_results(folder, "equivalence", command, tables, figures, name=name, found=found)

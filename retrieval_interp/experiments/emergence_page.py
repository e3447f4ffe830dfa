"""Figure 6, figure 7 (right) and Appendix D of the paper, for any run, and a page of them with CSV tables."""

from __future__ import annotations

from pathlib import Path

import plotly.express as px

from circuits.utils.files import write_together
from circuits.utils.lazy import pandas as pd
from circuits.utils.plotting import go
from retrieval_interp.experiments.emergence import Emergence
from retrieval_interp.experiments.observations import observations
from retrieval_interp.models.model_dir import ATTENTION
from retrieval_interp.results import page_of
from retrieval_interp.training.curves import EMERGED

FILES = ("emergence.html", ATTENTION, "emergence.csv", "losses.csv")


def loss_figure(run: Emergence) -> go.Figure:
    """Draw figure 6: training loss, validation loss and partial validation losses over the steps."""
    named = {"training": run.losses["loss"], "validation": run.losses["validation"], **run.validated}
    rows = pd.DataFrame(
        {"step": step, "loss": loss, "of": name, "panel": "partial, validation" if name in run.validated else "all"}
        for name, curve in named.items()
        for step, loss in curve.items()
    )
    figure = px.line(rows, "step", "loss", color="of", facet_col="panel", labels={"loss": "mean squared error"})
    figure.add_hline(y=EMERGED, line_dash="dash", line_width=1, col=2)
    return _styled(figure, 400).update_yaxes(rangemode="tozero")


def emerged_figure(run: Emergence) -> go.Figure:
    """Draw figure 7, right: the step at which each path emerged, with the lowest layer at the bottom."""
    rows = run.table().reset_index()
    title = f"first step with an average attention above {EMERGED:g}"
    order = {"path": [*run.emerged][::-1]}
    figure = px.scatter(rows.dropna(), "step", "path", labels={"step": title}, category_orders=order)
    return _styled(figure, 140 + 28 * len(rows))


def path_figure(run: Emergence) -> go.Figure:
    """Draw Appendix D: one small plot for each path, with its average attention over the steps."""
    rows = pd.DataFrame(run.attention).rename_axis("step").reset_index().melt("step", var_name="path")
    columns = min(3, len(run.attention))
    figure = px.line(rows, "step", "value", facet_col="path", facet_col_wrap=columns, labels={"value": "attention"})
    figure.add_hline(y=EMERGED, line_dash="dash", line_width=1)
    return _styled(figure, 90 + 170 * -(-len(run.attention) // columns)).update_yaxes(range=[0, 1])


def _styled(figure: go.Figure, height: int) -> go.Figure:
    figure.for_each_annotation(lambda title: title.update(text=title.text.partition("=")[2], font_size=11))
    return figure.update_layout(template="plotly_white", height=height, legend_title_text="", margin={"t": 40})


FIGURES = {"losses": loss_figure, "emerged": emerged_figure, "paths": path_figure}


def write_emergence(run: Emergence, name: str, folder: Path, measured: str, followed: str) -> Path:
    """Write the page and the tables together, and return the path of the page.

    The command ``measured`` measures all possible paths; ``followed`` also names the circuit whose paths were followed.

    Raises:
        BadInput: the folder cannot be written.
    """
    attention, losses = (pd.DataFrame(curves).rename_axis("step") for curves in (run.all_paths, run.losses))
    tables = (measured, attention.round(4)), (followed, run.table().round(3)), (measured, losses)
    texts = [f"# {command}\n{table.to_csv()}" for command, table in tables]
    source = f"Attention from {run.source}. An epoch is 8 steps."
    said = [f"{one.name} {one.decision}: {one.sentence}" for one in observations(run)]
    figures = {figure: draw(run) for figure, draw in FIGURES.items()}
    title = f"{name}: when each attention path emerges"
    page = page_of(title, [source, *said], followed, figures, run.table().reset_index())
    write_together({folder / file: text for file, text in zip(FILES, [page, *texts], strict=True)})
    return folder / FILES[0]

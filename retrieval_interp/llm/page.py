"""Figure 2 of the paper for any models, as a table and an offline page."""

from __future__ import annotations

from html import escape
from pathlib import Path

import plotly.colors
import plotly.express as px
import plotly.graph_objects as go

from circuits.utils.lazy import pandas as pd
from retrieval_interp.llm.results import ASKED
from retrieval_interp.results import write_page

OPTIONS = ("chains", "seed", "questions", *ASKED)
ABOUT = (
    "The share of questions answered correctly, with Wilson's 95% interval (after figure 2 of the paper). Dashes are "
    "the accuracy of guessing among the acceptable answers. A model is asked to answer directly, and asked again until "
    "its answer is acceptable; by forced choice, the acceptable answer counts that it finds most likely. A question "
    "without an acceptable answer (exhausted) counts as wrong; a question that failed does not count."
)


def with_series(table: pd.DataFrame) -> pd.DataFrame:
    """Add a column ``series``: the name of the model, with those options that differ between rows."""
    differing = [option for option in OPTIONS if table[option].nunique(dropna=False) > 1]
    rows = table.to_dict("records")
    return table.assign(
        series=[", ".join([row["model"], *(f"{o.replace('_', ' ')} {row[o]}" for o in differing)]) for row in rows]
    )


def accuracy_figure(table: pd.DataFrame) -> go.Figure:
    """Draw the accuracy of every model on every formulation and number of steps, with intervals; chance is a dash."""
    shown = with_series(table)
    shown["series"] = shown["series"].map(escape)  # plotly renders HTML in names
    steps = shown["steps"].map(lambda steps: "" if pd.isna(steps) else f"<br>D = {steps}")
    shown["questions asked"] = shown["formulation"].str.replace("_", "-") + steps
    figure = px.bar(
        shown,
        x="questions asked",
        y="accuracy",
        color="series",
        barmode="group",
        error_y=shown["high"] - shown["accuracy"],
        error_y_minus=shown["accuracy"] - shown["low"],
        hover_data=["right", "asked", "exhausted"],
        color_discrete_sequence=plotly.colors.qualitative.Safe,
    )
    dash = {"symbol": "line-ew", "size": 26, "line": {"width": 2, "color": "black"}}
    figure.add_scatter(x=shown["questions asked"], y=shown["chance"], mode="markers", marker=dash, name="chance")
    return figure.update_layout(template="plotly_white", height=460, yaxis_range=[0, 1.05])


def write_accuracy(table: pd.DataFrame, folder: Path, command: str) -> Path:
    """Write the table of ``results`` and the page, and return the path of the page.

    Raises:
        BadInput: the folder cannot be written.
    """
    figures = {"accuracy": accuracy_figure(table)}
    return write_page(
        folder / "accuracy.html", "Language models on the retrieval problem", ABOUT, command, figures, table
    )

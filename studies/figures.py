"""Draw the figure of each study from its table: ``python -m studies.figures``. It needs a Chromium."""

import tempfile
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly import express

from tests.browser import new_page

HERE = Path(__file__).parent
PROPERTIES = ("joins_first", "walks", "doubles", "divides", "eliminates", "flow_check")


def census(table: pd.DataFrame) -> go.Figure:
    """The share of circuits with each property, by preset."""
    there = table[table["found"].eq(True)].assign(divides=lambda rows: rows["divided"].fillna(0) > 0)
    shares = there.groupby("preset")[[*PROPERTIES]].agg(lambda column: column.eq(True).mean()).T
    rows = shares[["small", "medium"]].reset_index(names="property").melt("property", value_name="share of circuits")
    bars = express.bar(rows, x="property", y="share of circuits", color="preset", barmode="group", range_y=(0, 1))
    for rule in (0.1, 0.9):
        bars.add_hline(y=rule, line_dash="dash", line_color="#767676")
    return bars


def peers(table: pd.DataFrame) -> go.Figure:
    """The area under the ROC curve, over all levels, and the sequences of each method."""
    means = table.groupby("method", as_index=False)[["area", "sequences"]].mean()
    named = {"x": "sequences", "y": "area", "text": "method", "log_x": True, "range_x": (10, 30_000)}
    means = means[means["sequences"] > 0].sort_values("sequences")
    sides = [("top left", "bottom right")[place % 2] for place in range(len(means))]
    return express.scatter(means, **named).update_traces(textposition=sides, cliponaxis=False)


def recipe(table: pd.DataFrame) -> go.Figure:
    """The last validation loss, by preset and steps of warm-up."""
    rows = table.assign(warmup=table["warmup"].astype(str) + " steps")
    return express.bar(rows, x="preset", y="loss", color="warmup", barmode="group")


def tracr(table: pd.DataFrame) -> go.Figure:
    """Precision and recall of each head with a selector."""
    rows = table.dropna(subset="precision").assign(head=lambda rows: rows["program"] + " " + rows["head"])
    measured = rows.melt("head", ["precision", "recall"], var_name="measured", value_name="share")
    bars = express.bar(measured, x="head", y="share", color="measured", barmode="group", range_y=(0, 1))
    return bars.add_hline(y=0.95, line_dash="dash", line_color="#767676")


if __name__ == "__main__":
    for draw in (census, peers, recipe, tracr):
        study = HERE / draw.__name__
        figure = draw(pd.read_csv(study / "table.csv", comment="#"))
        figure.update_layout(
            template="plotly_white", width=720, height=360, title=draw.__doc__, font_size=13, title_font_size=15
        )
        with tempfile.TemporaryDirectory() as folder:
            figure.write_html(Path(folder) / "figure.html")
            with new_page() as (page, _):
                page.goto((Path(folder) / "figure.html").as_uri())
                page.locator(".js-plotly-plot").screenshot(path=study / "figure.png")

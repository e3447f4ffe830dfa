"""Draw the figure of each study from its table: ``python -m studies.figures [STUDY ...]``. It needs a Chromium."""

import sys
import tempfile
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go
from plotly import express

from tests.browser import new_page

HERE = Path(__file__).parent
ORDER = ["name asked", "x3", "x2", "x1 (city)", "others", "end"]
PROPERTIES = {
    "joins_first": "joins pairs<br>first",
    "walks": "walks along<br>the chain",
    "doubles": "doubles",
    "divides": "divides a<br>head by slot",
    "eliminates": "finds a symbol<br>by elimination",
    "flow_check": "passes the<br>flow check",
}
PRESETS = {"small": "D = 2 (small)", "medium": "D = 3 (medium)"}


def census(table: pd.DataFrame) -> go.Figure:
    """The share of circuits with each property."""
    there = table[table["found"].eq(True)].assign(divides=lambda rows: rows["divided"].fillna(0) > 0)
    shares = there.groupby("preset")[[*PROPERTIES]].agg(lambda column: column.eq(True).mean()).T
    shares = shares.rename(PROPERTIES).rename(columns=PRESETS)[[*PRESETS.values()]]
    rows = shares.reset_index(names="property").melt("property", value_name="share of circuits")
    bars = express.bar(rows, x="property", y="share of circuits", color="preset", barmode="group", range_y=(0, 1))
    bars.update_layout(xaxis_title=None, xaxis_tickangle=0, legend_title=None)
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
    """The last validation loss, by model and steps of warm-up."""
    models = {"figure4_ic_3": "figure 4, three layers", "figure4_ic_6": "figure 4, six layers", "paper_d": "D"}
    rows = table.assign(warmup=table["warmup"].astype(str) + " steps", preset=table["preset"].map(models))
    bars = express.bar(rows, x="preset", y="loss", color="warmup", barmode="group", labels={"warmup": "warm-up"})
    return bars.update_xaxes(title=None)


def tracr(table: pd.DataFrame) -> go.Figure:
    """Precision and recall of each head with a selector."""
    rows = table.dropna(subset="precision").assign(head=lambda rows: rows["program"] + " " + rows["head"])
    measured = rows.melt("head", ["precision", "recall"], var_name="measured", value_name="share")
    bars = express.bar(measured, x="head", y="share", color="measured", barmode="group", range_y=(0, 1))
    return bars.add_hline(y=0.95, line_dash="dash", line_color="#767676")


def smollm2(table: pd.DataFrame) -> go.Figure:
    """Faithfulness (mean of three seeds) by the number of heads that stay, largest scores first."""
    ways = {"resample": "outputs patched", "pattern": "average patterns"}
    signed = table.groupby(["task", "method", "replaced"])["order"].transform(lambda orders: (orders == "sign").any())
    table = table[table["order"].eq("sign") | ~signed]
    means = table.groupby(["task", "method", "replaced", "heads"], sort=False, as_index=False)["faithfulness"].mean()
    rows = means.replace({"replaced": ways, "task": {"ioi": "IOI"}}).assign(heads=means["heads"] + 1)
    named = {"x": "heads", "y": "faithfulness", "color": "method", "facet_row": "task", "facet_col": "replaced"}
    lines = express.line(rows, **named, log_x=True, range_y=(-0.6, 1.9), labels={"heads": "heads that stay, plus 1"})
    lines.for_each_annotation(lambda one: one.update(text=one.text.split("=")[-1]))
    return lines.add_hline(y=1, line_dash="dash", line_color="#767676")


def ladder(table: pd.DataFrame) -> go.Figure:
    """How much of the other answer comes with the residual stream at a position, after each layer."""
    shown = {
        "equations 1 steps": "equations, one step",
        "equations 3 steps": "equations, three steps",
        "smollm2 name city": "SmolLM2: Ann Rome. ... Ann",
        "smollm2 name lives in city": "SmolLM2: Ann lives in Rome. ...",
    }
    rows = table.assign(panel=(table["model"] + " " + table["text"]).map(shown)).dropna(subset="panel")
    rows["exchanged"] = rows["exchange"].map({"asked": "name asked", "facts": "facts"})
    rows["read at"] = rows["site"].replace({"x1": "x1 (city)", "cities": "x1 (city)"})
    named = {"x": "layer", "y": "moved", "color": "read at", "facet_row": "exchanged", "facet_col": "panel"}
    lines = express.line(
        rows,
        **named,
        category_orders={"panel": [*shown.values()], "read at": ORDER},
        range_y=(-0.2, 1.2),
        labels={"moved": "share of the change"},
    )
    return lines.update_xaxes(matches=None).for_each_annotation(lambda one: one.update(text=one.text.split("=")[-1]))


FIGURES = {
    census: ("table.csv", 860, 360),
    peers: ("table.csv", 720, 360),
    recipe: ("table.csv", 720, 360),
    tracr: ("table.csv", 720, 360),
    smollm2: ("peers.csv", 860, 620),
    ladder: ("places.csv", 1160, 560),
}


def take(picture: Path, html: str) -> None:
    """Write a picture of what a page shows."""
    with tempfile.TemporaryDirectory() as folder, new_page(viewport={"width": 1200, "height": 800}) as (page, _):
        (Path(folder) / "figure.html").write_text(html, encoding="utf-8")
        page.goto((Path(folder) / "figure.html").as_uri())
        page.locator("body > *").first.screenshot(path=picture)


if __name__ == "__main__":
    for draw, (table, width, height) in FIGURES.items():
        study = HERE / draw.__name__
        if sys.argv[1:] and study.name not in sys.argv[1:]:
            continue
        figure = draw(pd.read_csv(study / table, comment="#"))
        figure.update_layout(
            template="plotly_white", width=width, height=height, title=draw.__doc__, font_size=13, title_font_size=15
        )
        take(study / "figure.png", figure.to_html())

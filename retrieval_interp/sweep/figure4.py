"""Figure 4 of the paper (section 7): the losses of a sweep's runs by number of layers, as a table and a figure."""

from __future__ import annotations

from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.run import LEARNED
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.theory.depth import layers_causal

FAILED = 0.7  # a final loss above it counts as failed (paper, section 7.2)
ALL = "all"  # the symbol name of the mean over symbols


def family(name: str) -> str:
    """Return the task of a preset, such as ``D = 5, asked for x1 ... x5``; presets of one family differ in depth."""
    chosen = preset(name)
    hops = f"D = {chosen.task.n_steps}, " if isinstance(chosen.task, RetrievalTask) else ""  # true for every plan
    return f"{hops}asked for {chosen.task.asked}{', D growing' if chosen.recipe.growing else ''}"


def with_means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the table of ``read_runs`` with a row ``all`` for every run before the others, the mean over its symbols.

    Columns are added: ``family``, ``layers``, and ``takes``, the least number of layers for the symbol by information
    flow.
    """
    means = runs.groupby(["preset", "seed"], sort=False, as_index=False)["loss"].mean().assign(symbol=ALL)
    rows = pd.concat([means, runs], ignore_index=True)
    rows["family"] = rows["preset"].map(family)
    rows["layers"] = rows["preset"].map(lambda name: preset(name).architecture.n_layers)
    rows["takes"] = [layers_causal(int(symbol[1:])) if symbol != ALL else None for symbol in rows["symbol"]]
    return rows


def figure4_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return a table with one row for every preset and symbol, and one row ``all`` for the mean over the symbols.

    Columns:
        ``preset``, ``family``, ``layers``, ``symbol``;
        ``takes``: the least number of layers for the symbol by information flow;
        ``runs``, ``learned``: the number of runs, and of those with a loss below 0.5;
        ``loss``, ``low``, ``high``: the mean, lowest and highest loss over seeds;
        ``fell``: the median first step with a training loss below 0.5, over the runs that reached it.

    Args:
        runs: the table of ``read_runs``.
    """
    rows = with_means(runs).assign(learned=lambda rows: rows["loss"] < LEARNED)
    groups = rows.groupby(["preset", "family", "layers", "symbol", "takes"], sort=False, dropna=False, as_index=False)
    table = groups.agg(
        runs=("loss", "size"),
        learned=("learned", "sum"),
        loss=("loss", "mean"),
        low=("loss", "min"),
        high=("loss", "max"),
        fell=("fell", "median"),
    )
    places = {name: place for place, name in enumerate(runs["preset"].unique())}
    return table.sort_values("preset", key=lambda names: names.map(places), kind="stable", ignore_index=True)


def figure4_figure(runs: pd.DataFrame) -> plotly.graph_objects.Figure:
    """Draw figure 4: left the final loss of every family, then the loss of every symbol, by number of layers.

    A family is a task, at every depth; one that is asked for several symbols has a panel for them. Dots are runs, lines
    are means over seeds. A vertical line is just left of the least number of layers by information flow.

    Args:
        runs: the table of ``read_runs``.
    """
    import plotly.express as px

    rows = with_means(runs)
    families, final = rows.groupby("family"), rows["symbol"] == ALL
    rows["takes"] = rows["takes"].fillna(families["takes"].transform("max"))
    rows["line"], rows["panel"] = rows["family"].where(final, rows["symbol"]), rows["family"].mask(final, "final loss")
    rows = rows[final | (families["symbol"].transform("nunique") > 2)]
    lines, panels = [*rows["line"].unique()], [*rows["panel"].unique()]
    place = rows.groupby("panel")["line"].transform(lambda own: pd.factorize(own)[0])
    rows["aside"] = 0.08 * (place - place.groupby(rows["panel"]).transform("max") / 2)  # lines stand side by side
    rows["x"] = rows["layers"] + rows["aside"]
    look = {"x": "x", "y": "loss", "color": "line", "facet_col": "panel"}
    look["color_discrete_sequence"] = colours = px.colors.qualitative.Safe
    means = rows.groupby(["panel", "line", "x"], sort=False, as_index=False)["loss"].mean()
    figure = px.scatter(rows, symbol="line", hover_data=["preset", "seed"], **look)
    figure.add_traces(px.line(means, **look).update_traces(showlegend=False, hoverinfo="skip").data)
    ends = rows[["line", "panel", "takes", "aside"]].drop_duplicates()
    for line, panel, takes, aside in ends.itertuples(index=False):
        colour, x = colours[lines.index(line) % len(colours)], takes - 0.5 + aside / 2
        figure.add_vline(x=x, col=panels.index(panel) + 1, line_width=1, line_color=colour)
    figure.add_hline(y=FAILED, line={"color": "#999999", "dash": "dash", "width": 1}, col=1)
    figure.for_each_annotation(lambda title: title.update(text=title.text.removeprefix("panel=")))
    figure.update_xaxes(title_text="layers", dtick=1).update_yaxes(title_text="squared error", col=1)
    return figure.update_yaxes(rangemode="tozero").update_layout(template="plotly_white", legend_title_text="")

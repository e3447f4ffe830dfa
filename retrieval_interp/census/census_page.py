"""The census of circuits as a table and one offline page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import plotly.colors
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from circuits.circuit import Circuit
from circuits.flow.canonical_form import role_paths
from circuits.flow.layout import Layout
from circuits.utils.lazy import pandas as pd
from retrieval_interp.census.census import Examined
from retrieval_interp.census.census_table import sentences, table
from retrieval_interp.models.presets import preset
from retrieval_interp.results import write_results

FILES = ("census.csv", "census.html")
COLOURS = plotly.colors.qualitative.Safe
DOES = ("joins a pair", "the query fetches", "a pair fetches")
SHOWN = 12  # canonical forms of a preset


def heads_figure(rows: pd.DataFrame) -> go.Figure:
    """How many circuits have how many useful heads, a panel for each preset; a line where flow has its least."""
    circuits = rows[rows["found"]]
    presets = [*dict.fromkeys(circuits["preset"])]
    figure = make_subplots(1, max(1, len(presets)), subplot_titles=presets)
    for column, name in enumerate(presets, start=1):
        own = circuits[circuits["preset"] == name]
        counts = own["heads"].value_counts().sort_index()
        bars = go.Bar(x=[*counts.index], y=[*counts], width=0.8, marker={"color": COLOURS[0]}, showlegend=False)
        figure.add_trace(bars, row=1, col=column)
        figure.add_vline(x=own["least"].iloc[0] - 0.5, line={"dash": "dash", "color": "#555555"}, row=1, col=column)
        most = max(own["heads"].max(), preset(name).architecture.n_layers)
        figure.update_xaxes(range=[0.4, most + 0.6], row=1, col=column)
        figure.update_yaxes(dtick=_between_ticks(int(counts.max())), row=1, col=column)
    figure.update_xaxes(title_text="useful heads", dtick=1)
    figure.update_yaxes(title_text="circuits", col=1)
    return figure.update_layout(template="plotly_white", height=320, margin={"t": 50})


def layers_figure(examined: Sequence[Examined]) -> go.Figure:
    """In which layers the circuits join pairs and fetch, a panel for each preset."""
    circuits = [(one.finding.preset, one.circuit) for one in examined if one.circuit]
    presets = [*dict.fromkeys(name for name, _ in circuits)]
    figure = make_subplots(1, max(1, len(presets)), subplot_titles=presets)
    for column, name in enumerate(presets, start=1):
        chosen = preset(name)
        done = Counter(one for own, c in circuits if own == name for one in _done(c, chosen.task.layout))
        layers = [*range(chosen.architecture.n_layers)]
        for what, colour, hatched in zip(DOES, COLOURS, ("", "/", "."), strict=False):
            bars = go.Bar(x=layers, y=[done[layer, what] for layer in layers], name=what, legendgroup=what)
            bars.update(showlegend=column == 1, marker={"color": colour, "pattern": {"shape": hatched}})
            figure.add_trace(bars, row=1, col=column)
        figure.update_yaxes(dtick=_between_ticks(max(done.values(), default=0)), row=1, col=column)
    figure.update_xaxes(title_text="layer", dtick=1)
    figure.update_yaxes(title_text="circuits", col=1)
    return figure.update_layout(template="plotly_white", height=320, margin={"t": 50}, barmode="group")


def _between_ticks(most: int) -> int:
    """A whole number, so that an axis up to ``most`` has some five marks."""
    return max(1, round(most / 5))


def _done(circuit: Circuit, layout: Layout) -> set[tuple[int, str]]:
    """The layers of a circuit with what each does."""
    done = set()
    for path in role_paths(circuit, layout):
        fetches = DOES[1] if path.source == "query" else DOES[2]
        done.add((path.head.layer, DOES[0] if (path.source, path.target) in layout.joined else fetches))
    return done


def canonical_forms(rows: pd.DataFrame) -> pd.DataFrame:
    """The canonical forms of each preset, the most frequent first, with how many circuits have them."""
    counted = (
        rows[rows["found"]].groupby(["preset", "canonical_form"], sort=False).size().rename("circuits").reset_index()
    )
    return counted.sort_values(["preset", "circuits", "canonical_form"], ascending=[True, False, True])


def write_census(examined: Sequence[Examined], left_out: int, folder: Path, command: str) -> Path:
    """Write the table and the page; returns the page's path.

    Raises:
        BadInput: the folder cannot be written.
    """
    rows = table(examined)
    forms = canonical_forms(rows)
    return write_results(
        folder,
        "census",
        command,
        {"census": rows},
        {"heads": heads_figure(rows), "layers": layers_figure(examined)},
        sentences=sentences(rows, left_out),
        forms=forms.groupby("preset").head(SHOWN),
        n_forms=len(forms),
        models=rows,
    )

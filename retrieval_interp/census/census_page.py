"""The census of circuits as a table and an offline page."""

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
from retrieval_interp.census.properties import properties
from retrieval_interp.models.presets import preset
from retrieval_interp.results import write_results

FILES = ("census.csv", "census.html")
COLOURS = plotly.colors.qualitative.Safe
KINDS = JOINS, QUERY_FETCHES, PAIR_FETCHES = "joins a pair", "the query fetches", "a pair fetches"
SHOWN = 12  # most canonical forms shown for a preset


def heads_figure(rows: pd.DataFrame) -> go.Figure:
    """Draw the number of circuits by number of useful heads, in a panel for each preset.

    A dashed line is just left of the least number of heads that information flow allows.
    """
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
        figure.update_yaxes(dtick=_tick_step(int(counts.max())), row=1, col=column)
    figure.update_xaxes(title_text="useful heads", dtick=1)
    figure.update_yaxes(title_text="circuits", col=1)
    return figure.update_layout(template="plotly_white", height=320, margin={"t": 50})


def layers_figure(examined: Sequence[Examined]) -> go.Figure:
    """Draw the number of circuits that join pairs and fetch in each layer, in a panel for each preset."""
    circuits = [(one.finding.preset, one.circuit) for one in examined if one.circuit]
    presets = [*dict.fromkeys(name for name, _ in circuits)]
    figure = make_subplots(1, max(1, len(presets)), subplot_titles=presets)
    for column, name in enumerate(presets, start=1):
        chosen = preset(name)
        counts = Counter(one for own, c in circuits if own == name for one in _operations(c, chosen.task.layout))
        layers = [*range(chosen.architecture.n_layers)]
        for kind, colour, hatched in zip(KINDS, COLOURS, ("", "/", "."), strict=False):
            bars = go.Bar(x=layers, y=[counts[layer, kind] for layer in layers], name=kind, legendgroup=kind)
            bars.update(showlegend=column == 1, marker={"color": colour, "pattern": {"shape": hatched}})
            figure.add_trace(bars, row=1, col=column)
        figure.update_yaxes(dtick=_tick_step(max(counts.values(), default=0)), row=1, col=column)
    figure.update_xaxes(title_text="layer", dtick=1)
    figure.update_yaxes(title_text="circuits", col=1)
    return figure.update_layout(template="plotly_white", height=320, margin={"t": 50}, barmode="group")


def _tick_step(most: int) -> int:
    """Return a whole number of units between ticks that gives an axis up to ``most`` about five ticks."""
    return max(1, round(most / 5))


def _operations(circuit: Circuit, layout: Layout) -> set[tuple[int, str]]:
    """Return what the paths of a circuit do, as pairs of a layer and a kind of operation."""
    found = set()
    for path in role_paths(circuit, layout):
        fetches = QUERY_FETCHES if path.source == "query" else PAIR_FETCHES
        found.add((path.head.layer, JOINS if (path.source, path.target) in layout.joined else fetches))
    return found


def canonical_forms(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the canonical forms of each preset with their numbers of circuits, the most frequent first."""
    counted = (
        rows[rows["found"]].groupby(["preset", "canonical_form"], sort=False).size().rename("circuits").reset_index()
    )
    return counted.sort_values(["preset", "circuits", "canonical_form"], ascending=[True, False, True])


def write_census(examined: Sequence[Examined], left_out: int, folder: Path, command: str) -> Path:
    """Write the table and the page, and return the path of the page.

    Args:
        examined: the findings and circuits.
        left_out: the number of runs that were not examined because they have no weights.
        folder: the folder to write to.
        command: the command that made them.

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
        properties=properties(examined),
        forms=forms.groupby("preset").head(SHOWN),
        n_forms=len(forms),
        models=rows,
    )

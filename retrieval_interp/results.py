"""Results as files: one offline page and its tables, written together, each with the command that made it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circuits.utils.files import write_together
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly


def write_results(
    folder: Path,
    name: str,
    command: str,
    tables: Mapping[str, pd.DataFrame],
    figures: Mapping[str, plotly.graph_objects.Figure],
    commands: Mapping[str, str] | None = None,
    /,
    **contents: Any,
) -> Path:
    """Write ``name.html`` and the tables; returns the page's path.

    Args:
        folder: for the files.
        name: of the page and of its template.
        command: that made the results.
        tables: CSV files, by their names without the ending; an index is written where it has a name.
        figures: for the template, by the ids that they get.
        commands: of the tables that another command made.
        **contents: what else the template names.

    Raises:
        BadInput: the folder cannot be written.
    """
    from circuits.figures.page import figure_element, render_page  # with plotly, which takes its time

    elements = {figure: figure_element(drawn, figure) for figure, drawn in figures.items()}
    page = render_page(f"{name}.html.jinja", "retrieval_interp", command=command, figures=elements, **contents)
    texts = {
        folder / f"{table}.csv": f"# {(commands or {}).get(table, command)}\n"
        + rows.to_csv(index=rows.index.name is not None)
        for table, rows in tables.items()
    }
    write_together({**texts, folder / f"{name}.html": page})
    return folder / f"{name}.html"

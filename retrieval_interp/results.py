"""Results as files: an offline page and its tables, each with the command that made it."""

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
    """Write ``name.html`` and the tables, and return the path of the page.

    Args:
        folder: the folder for the files.
        name: the name of the page and of its template.
        command: the command that made the results.
        tables: the contents of the CSV files, by file name without the suffix; a named index is written, too.
        figures: the template's figures, by their ids in the page.
        commands: the commands of those tables that another command made.
        **contents: all other values that the template uses.

    Raises:
        BadInput: the folder cannot be written.
    """
    from circuits.figures.page import figure_element, render_page  # imports plotly, which is slow

    elements = {figure: figure_element(drawn, figure) for figure, drawn in figures.items()}
    page = render_page(f"{name}.html.jinja", "retrieval_interp", command=command, figures=elements, **contents)
    texts = {
        folder / f"{table}.csv": f"# {(commands or {}).get(table, command)}\n"
        + rows.to_csv(index=rows.index.name is not None)
        for table, rows in tables.items()
    }
    write_together({**texts, folder / f"{name}.html": page})
    return folder / f"{name}.html"

"""Results as files: an offline page and its tables, each with the command that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from circuits.utils.files import write_together
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import plotly


def write_page(
    page: Path,
    title: str,
    text: str,
    command: str,
    figures: Mapping[str, plotly.graph_objects.Figure],
    table: pd.DataFrame,
) -> Path:
    """Write a page of figures and one table, and the table as CSV beside it; return the path of the page.

    Args:
        page: the file to write, ``NAME.html``; the table is in ``NAME.csv``, and has the id ``table`` in the page.
        title: the heading.
        text: what the page shows, one paragraph.
        command: the command that made the results.
        figures: the figures, by their ids in the page.
        table: the table.

    Raises:
        BadInput: the folder cannot be written.
    """
    html = page_of(title, [text], command, figures, table)
    write_together({page.with_suffix(".csv"): f"# {command}\n{table.to_csv(index=False)}", page: html})
    return page


def page_of(
    title: str,
    texts: Sequence[str],
    command: str,
    figures: Mapping[str, plotly.graph_objects.Figure],
    table: pd.DataFrame,
) -> str:
    """Return a page of some paragraphs, figures by their ids, and one table."""
    from circuits.figures.page import figure_element, render_page  # imports plotly, which is slow

    contents = {"title": title, "texts": texts, "command": command}
    drawn = [figure_element(figure, name) for name, figure in figures.items()]
    cells = table.to_html(index=False, na_rep="", float_format="{:.4g}".format, border=0, table_id="table")
    return render_page("page.html.jinja", "retrieval_interp", **contents, figures=drawn, table=Markup(cells))


class Interval(NamedTuple):
    """A share with its confidence interval (95% by default)."""

    mean: float
    low: float
    high: float

    @classmethod
    def of_share(cls, right: int, n: int, level: float = 0.95) -> Interval:
        """Return Wilson's interval of the share ``right`` of ``n``."""
        from scipy.stats import binomtest

        interval = binomtest(right, n).proportion_ci(level, method="wilson")
        return cls(right / n, float(interval.low), float(interval.high))

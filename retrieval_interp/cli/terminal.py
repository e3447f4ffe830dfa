"""Terminal output: progress on standard error, tables on standard output."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retrieval_interp.cli.options import Interrupted

if TYPE_CHECKING:
    import pandas as pd

    from retrieval_interp.claims.claim import Claim
    from retrieval_interp.theory.depth import Depth


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on standard error; yields a function that takes the finished share, 0 to 1."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar = progress.add_task(what, total=1.0)

    def update(share: float) -> None:
        progress.start()  # only now, so that an earlier error leaves no empty bar
        progress.update(bar, completed=share)

    try:
        yield update
    finally:
        progress.stop()


def print_json(command: str, made: Mapping[str, Any], **content: Any) -> None:
    """Print one JSON document: the command, the versions in ``made``, and the results."""
    print(json.dumps({"command": command, **made, **content}, indent=2))


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, with null for missing values."""
    return json.loads(table.to_json(orient="records"))


def printable(text: str) -> str:
    """Escape the characters of a text that could move the cursor or hide other text."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def runs_bar(what: str = "training") -> Iterator[Callable[[float], None]]:
    """Show a progress bar for the runs of an experiment; after Ctrl-C the finished runs are kept."""
    try:
        with progress_bar(what) as progress:
            yield progress
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the finished runs are kept, and the same command continues") from None


def print_depths(rows: "Sequence[Depth]") -> None:
    """Print the number of layers for every number of hops."""
    from rich.console import Console
    from rich.table import Column, Table

    titles = ("hops D", "the paper's bound, log3(2D)", "without a mask", "with the causal mask", "fetched by position")
    shown = Table(*(Column(title, justify="right") for title in titles), title="Layers needed")
    for hops, bound, *layers in rows:
        shown.add_row(str(hops), f"{bound:.2f}", *map(str, layers))
    Console().print(shown)


def print_claims(rows: "Sequence[Claim]") -> None:
    """Print the claims one below another, so that they can be read at any width."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    colours = {"holds": "green", "holds at smaller scale": "green", "differs": "red", "not measured": "yellow"}
    console = Console()
    for row in rows:
        console.print(Text.assemble((f"{row.section}  {row.claim}: ", "bold"), (row.verdict, colours[row.verdict])))
        runs = f" ({row.runs} run{'s' if row.runs > 1 else ''})" if row.runs else ""
        told = {"paper": row.paper, "models": f"{row.models}{runs}", "here": row.measured}
        for name, text in told.items():
            if text != "-":
                console.print(Padding(Text(f"{name}: {text}"), (0, 0, 0, 4)))

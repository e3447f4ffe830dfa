"""Terminal output: progress on standard error, tables on standard output."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from circuits.utils.progress import shown
from retrieval_interp.cli.options import Interrupted

if TYPE_CHECKING:
    import pandas as pd

    from retrieval_interp.theory.depth import Depth

progress_bar = partial(shown, None)  # of what its argument names, on standard error


@contextmanager
def runs_bar(what: str = "training") -> Iterator[Callable[[float], None]]:
    """Show a progress bar for the runs of an experiment; after Ctrl-C the finished runs are kept."""
    try:
        with progress_bar(what) as progress:
            yield progress
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the finished runs are kept, and the same command continues") from None


def print_json(command: str, made: Mapping[str, Any], **content: Any) -> None:
    """Print one JSON document: the command, the versions in ``made``, and the results."""
    print(json.dumps({"command": command, **made, **content}, indent=2))


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """Return the rows of a table for JSON, with null for missing values."""
    return json.loads(table.to_json(orient="records"))


def printable(text: str) -> str:
    """Escape the characters of a text that could move the cursor or hide other text."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def print_table(texts: Sequence[str], numbers: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; the columns of texts, which come first, are folded where they are too wide."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    folded = (Column(name, overflow="fold") for name in texts)
    kept = (Column(name, justify="right", no_wrap=True) for name in numbers)
    table = Table(*folded, *kept, box=SIMPLE_HEAD, padding=0)
    for row in rows:
        table.add_row(*map(str, row))
    Console().print(table)


def print_depths(rows: "Sequence[Depth]") -> None:
    """Print the number of layers for every number of hops."""
    titles = ("hops D", "log3(2D)", "no mask", "causal mask", "by position")
    print_table((), titles, [(hops, f"{bound:.2f}", *layers) for hops, bound, *layers in rows])

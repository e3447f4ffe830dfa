"""Terminal output: progress on standard error, tables on standard output."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from retrieval_interp.cli.options import Interrupted

if TYPE_CHECKING:
    import pandas as pd

    from circuits.discovery.discovery import Discovery
    from circuits.null_models.chance import ChanceReport
    from circuits.validation.validation_report import ValidationReport
    from retrieval_interp.claims.claim import Claim
    from retrieval_interp.theory.depth import Depth

OUTCOMES = {"passed": "green", "failed": "red", "undetermined": "yellow"}
DECISIONS = {"holds": "green", "fails": "red", "undecided": "yellow"}


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


def print_report(report: "ValidationReport") -> None:
    """Print the verdict and the tables of a validation."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from circuits.mechanisms.mechanism import SIMPLE

    console = Console()
    heads = Table("head", "hypothesis", *SIMPLE, "its hypothesis", "hypothesis alone", title="Each head alone (step 3)")
    for head in report.heads:
        losses = [f"{head.losses[name].mean:.4f}" for name in (*SIMPLE, head.hypothesis)]
        heads.add_row(str(head.head), head.hypothesis, *losses, f"{head.alone} (simplest: {head.simplest or 'none'})")
    columns = ("row made uniform", "row made identity", "needed", "best other target")
    paths = Table(Column("path", no_wrap=True), *columns, title="The circuit without one path (step 6)")
    conditions = {path: path.condition for path in report.circuit.removable}
    for path in report.paths:
        losses = [f"{path.losses[n].mean:.4f}" for n in ("uniform", "identity")]
        nearest = (
            f"{path.nearest_alternative[0]} {path.nearest_alternative[1].mean:.4f}" if path.nearest_alternative else ""
        )
        condition = conditions[path.path]
        name = f"{path.path}{f' on {condition.text(path.path.target)}' if condition else ''}"
        paths.add_row(name, *losses, path.needed + (", weakly" if path.weak else ""), nearest)
    console.print(heads, paths)
    name = report.circuit.name or "The circuit"
    console.print(Text(f"{name}: {report.headline}", f"bold {DECISIONS[report.decision]}"))
    said = [(one.name, one.decision, one.verdicts) for one in report.statements]
    for name, decision, verdicts in (*said, ("Appendix E to the letter", report.paper.decision, report.paper.verdicts)):
        console.print(Text.assemble(f"{name}: ", (decision, DECISIONS[decision])))
        for verdict in verdicts:
            mark = Text(f"{verdict.outcome} ", OUTCOMES[verdict.outcome])
            console.print(Text.assemble(f"{verdict.step:>12} ", mark, verdict.sentence))
    for sentence in report.flow_sentences():
        console.print(Text.assemble(f"{'flow':>12} ", sentence))


def print_chance(chance: "ChanceReport") -> None:
    """Print the comparison with chance."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for sentence in chance.sentences():
        console.print(Text.assemble(f"{'chance':>12} ", sentence))


def print_discovery(found: "Discovery") -> None:
    """Print the mechanism of every head and the work of the discovery."""
    from rich.console import Console
    from rich.table import Column, Table

    titles = (Column("head", no_wrap=True), Column("loss", justify="right"), "looks at", "mechanism")
    shown = Table(*titles, title="The loss with one head mean-ablated, and the mechanism of each head")
    for head, loss in found.heads.alone.items():
        shown.add_row(str(head), f"{loss.mean:.4f}", found.heads.looks_at(head), str(found.circuit.heads[head]))
    console = Console()
    console.print(shown)
    console.print(f"Discovery tried {len(found.trials)} changes and ran {found.n_evaluations} sequences for losses.")
    if found.n_undecided:
        console.print(f"{found.n_undecided} changes were not made because the examples did not decide them; try more.")
    outcome = "within" if found.explains else "above"
    console.print(
        f"The loss with all heads replaced is {found.combined}, "
        f"{outcome} twice the unablated loss ({found.unablated}) plus a tenth of the threshold."
    )


def print_depths(rows: "Sequence[Depth]") -> None:
    """Print the number of layers for every number of hops."""
    from rich.console import Console
    from rich.table import Column, Table

    titles = ("hops D", "the paper's bound, log3(2D)", "without a mask", "with the causal mask", "fetched by position")
    shown = Table(*(Column(title, justify="right") for title in titles), title="Layers needed")
    for hops, bound, *layers in rows:
        shown.add_row(str(hops), f"{bound:.2f}", *map(str, layers))
    Console().print(shown)


def print_accuracy(table: "pd.DataFrame") -> None:
    """Print the accuracy of every model on every formulation."""
    from rich.console import Console
    from rich.table import Column, Table

    from retrieval_interp.llm.page import with_series
    from retrieval_interp.llm.results import shown_steps

    numbers = ("D", "correct", "accuracy", "chance")
    shown = Table(
        Column("model", overflow="fold"),
        Column("formulation", overflow="fold"),
        *(Column(title, justify="right", no_wrap=True) for title in numbers),
        "notes",
    )
    for row in with_series(table).to_dict("records"):
        steps = shown_steps(row["steps"])
        right = f"{row['right']} of {row['asked']}"
        accuracy = f"{row['accuracy']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" if row["asked"] else ""
        counts = {"never acceptable": row["exhausted"], "failed": row["failed"]}
        counts["not asked"] = row["questions"] - row["asked"] - row["failed"]
        rest = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
        shown.add_row(row["series"], row["formulation"], steps, right, accuracy, f"{row['chance']:.4f}", rest)
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

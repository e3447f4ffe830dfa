"""What people see on the terminal: progress on standard error, the tables of a validation on standard output."""

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
    """A progress bar on standard error; yields a function that takes the finished share."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (SpinnerColumn(), *Progress.get_default_columns(), TimeElapsedColumn())
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar = progress.add_task(what, total=1.0)

    def update(share: float) -> None:
        progress.start()  # only now: what fails before leaves no empty bar behind
        progress.update(bar, completed=share)

    try:
        yield update
    finally:
        progress.stop()


def print_json(command: str, made: Mapping[str, Any], **content: Any) -> None:
    """One JSON document: the command, with what it was made, and its results."""
    print(json.dumps({"command": command, **made, **content}, indent=2))


def records(table: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows of a table, for JSON: what is not there is null."""
    return json.loads(table.to_json(orient="records"))


def printable(text: str) -> str:
    """A text in which nothing moves the cursor or hides what stands before it: such characters by their numbers."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def runs_bar(what: str = "training") -> Iterator[Callable[[float], None]]:
    """The same for the runs of an experiment, whose finished ones outlast Ctrl-C."""
    try:
        with progress_bar(what) as progress:
            yield progress
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the finished runs are kept, the same command goes on") from None


def print_report(report: "ValidationReport") -> None:
    """The verdict and the tables of a validation on the terminal."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    from circuits.mechanisms.mechanism import SIMPLE

    console = Console()
    heads = Table("head", "hypothesis", *SIMPLE, "its hypothesis", "hypothesis alone", title="Each head alone")
    for head in report.heads:
        losses = [f"{head.losses[name].mean:.4f}" for name in (*SIMPLE, head.hypothesis)]
        heads.add_row(str(head.head), head.hypothesis, *losses, f"{head.alone} (simplest: {head.simplest or 'none'})")
    columns = ("row made uniform", "row made identity", "needed", "best other target")
    paths = Table(Column("path", no_wrap=True), *columns, title="The circuit without one path")
    for path in report.paths:
        losses = [f"{path.losses[n].mean:.4f}" for n in ("uniform", "identity")]
        nearest = (
            f"{path.nearest_alternative[0]} {path.nearest_alternative[1].mean:.4f}" if path.nearest_alternative else ""
        )
        condition = report.circuit.condition(path.path)
        name = f"{path.path}{f' on {condition.said(path.path.target)}' if condition else ''}"
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
    """What chance could have done, under what a validation printed."""
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for sentence in chance.sentences():
        console.print(Text.assemble(f"{'chance':>12} ", sentence))


def print_discovery(found: "Discovery") -> None:
    """What every head does, and how that was found."""
    from rich.console import Console
    from rich.table import Column, Table

    titles = (Column("head", no_wrap=True), Column("its average alone", justify="right"), "looks at", "its mechanism")
    shown = Table(*titles, title="Every head: the loss with its average pattern in its place")
    for head, loss in found.heads.alone.items():
        shown.add_row(str(head), f"{loss.mean:.4f}", found.heads.looks_at(head), str(found.circuit.heads[head]))
    console = Console()
    console.print(shown)
    console.print(f"{len(found.trials)} changes were tried; {found.n_evaluations} sequences were run.")
    outcome = "within" if found.explains else "above"
    console.print(
        f"All heads replaced: {found.combined}, {outcome} twice the unablated loss ({found.unablated}) plus 0.005."
    )


def print_depths(rows: "Sequence[Depth]") -> None:
    """Layers for every number of hops."""
    from rich.console import Console
    from rich.table import Column, Table

    titles = ("hops D", "the paper's bound, log3(2D)", "without a mask", "with the causal mask", "fetched by position")
    shown = Table(*(Column(title, justify="right") for title in titles), title="Layers that it takes")
    for hops, bound, *layers in rows:
        shown.add_row(str(hops), f"{bound:.2f}", *map(str, layers))
    Console().print(shown)


def print_accuracy(table: "pd.DataFrame") -> None:
    """Accuracy of every model on every kind of question."""
    from rich.console import Console
    from rich.table import Column, Table

    from retrieval_interp.llm.page import with_series
    from retrieval_interp.llm.results import shown_steps

    numbers = ("D", "right", "accuracy", "chance")
    shown = Table(
        Column("model", overflow="fold"),
        Column("asked", overflow="fold"),
        *(Column(title, justify="right", no_wrap=True) for title in numbers),
        "else",
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
    """The ledger as a table."""
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    table = Table("section", "claim", "the paper", "measured here", Column("verdict", no_wrap=True), show_lines=True)
    colours = {"holds": "green", "differs": "red", "not yet measured": "yellow"}
    for row in rows:
        texts = (Text(text) for text in (row.section, row.claim, row.paper, row.measured))
        table.add_row(*texts, Text(row.verdict, colours[row.verdict]))
    Console().print(table)

"""Reports and discoveries on the terminal: the statements of the page, in words, the verdict last."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuits.discovery.discovery import Discovery
    from circuits.report.report import Report

COLOURS = {"holds": "green", "fails": "red", "undecided": "yellow"}


def print_report(report: "Report", verbose: bool = False) -> None:
    """Print the statements with the verdicts of their steps, the tables if ``verbose``, and the decision."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    from circuits.report.page import as_texts, tables
    from circuits.report.strip import strip

    console = Console()
    for statement in report.all_statements:
        outcome = report.outcome(statement)
        console.print(Text.assemble(f"{statement.name}: ", (outcome, COLOURS.get(outcome, ""))))
        for verdict in statement.verdicts:
            word = verdict.decision if outcome == statement.decision else outcome
            said = Text.assemble(f"{verdict.name} ", (word, COLOURS.get(word, "")), f": {verdict.sentence}")
            console.print(Padding(said, (0, 0, 0, 4)))
    for note in report.notes:
        console.print(Text(note))
    for title, table in tables(report).items() if verbose else ():
        console.print("", Text(title, "bold"), sep="\n")
        for name, row in as_texts(table).iterrows():  # as blocks: a table of 80 columns would cut its numbers
            lines = [f"  {name}", *(f"      {column}: {value}" for column, value in row.items() if value)]
            console.print(Text("\n".join(lines)))
    whole, *facts = strip(report)
    console.print("", *(Text(str(fact), COLOURS.get(fact.kind, "")) for fact in facts), sep="\n")
    name = report.circuit.name or "The circuit"
    console.print(Text(f"{name}: {whole.said}", f"bold {COLOURS[report.decision]}"))


def print_discovery(discovery: "Discovery") -> None:
    """Print the mechanism of every head, and the work of the discovery."""
    from rich.console import Console
    from rich.text import Text

    from circuits.settings import current

    console, heads = Console(), discovery.circuit.heads
    shown = [head for head in heads if len(heads) <= current().one_by_one or heads[head].varies]
    for head, mechanism in ((head, heads[head]) for head in shown):
        looks = discovery.content_or_position
        alone = looks.alone.get(head) if looks else None
        said = f" (looks at {looks.looks_at(head)}; by its average alone {alone.loss})" if looks and alone else ""
        console.print(Text(f"{head!s:>8}  {mechanism}{said}"))
    if len(shown) < len(heads):
        console.print(f"{len(heads) - len(shown)} other heads are idle or have a fixed pattern.")
    tried = f"tried {len(discovery.trials)} changes and " if discovery.trials else ""
    console.print(f"Discovery {tried}ran {discovery.n_evaluations} sequences for losses.")
    if discovery.n_undecided:
        console.print(
            f"{discovery.n_undecided} changes were not made because the examples did not decide them; try more."
        )
    console.print(
        f"The loss with all heads replaced or idle is {discovery.combined.loss}, {discovery.combined.decision} "
        f"the threshold (the model's own is {discovery.scale.own}, with all heads idle {discovery.scale.none})."
    )

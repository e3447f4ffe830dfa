"""The command line. One file for each room of commands; the work is done elsewhere."""

import os
import sys
from typing import Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli import circuits, llm, models, study, sweep, theory, train, view
from retrieval_interp.cli.options import Interrupted
from retrieval_interp.cli.terminal import printable

# Some versions of typer carry a copy of click; typer's own name leads to the right base class in all of them.
UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
for room in (circuits, view, train):
    app.add_typer(room.app)
study.app.add_typer(sweep.app)
for group, room, said in (
    ("models", models, "List the presets; export, describe and share trained models."),
    (
        "study",
        study,
        "Experiments on the retrieval problem: sweeps, emergence, interventions, probes, the paper's claims.",
    ),
    ("theory", theory, "Information flow: how many layers it takes."),
    ("llm", llm, "The paper's prompts, and language models that answer them."),
):
    app.add_typer(room.app, name=group, help=said, rich_help_panel="Groups")


@app.callback()
def about() -> None:
    """Test a hypothesis about a transformer's attention heads."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; whatever the user can mend is one line on standard error and exit code 2."""
    try:
        code = app(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        if code == 130:  # what typer makes of Ctrl-C
            raise Interrupted("interrupted")
        sys.exit(code)
    except UsageError as error:
        complain(f"{error.format_message()} (see --help)")
    except BadInput as error:
        complain(str(error))
    except OSError as error:
        # What was printed cannot get out any more; Python would complain about that again when it ends.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        reason = error.strerror or error
        complain(f"{error.filename}: {reason}" if error.filename else f"standard output cannot be written ({reason})")
    except (Interrupted, typer.Abort, KeyboardInterrupt) as stopped:
        print(str(stopped) or "interrupted", file=sys.stderr)
        sys.exit(130)


def complain(message: str) -> None:
    """One line on standard error, exit code 2."""
    print(f"retrieval-interp: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)

"""The command line, with one module for each group of commands."""

import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli import circuits, llm, models, study, theory, train, view
from retrieval_interp.cli.options import Interrupted
from retrieval_interp.cli.terminal import printable

# Some versions of typer bundle click; the base class of BadParameter is the right UsageError in all versions.
UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
for ungrouped in (circuits, view, train):
    app.add_typer(ungrouped.app)
for group, grouped, said, example in (
    ("models", models, "List the presets; export and share trained models.", "presets"),
    ("study", study, "Train many models, and follow attention through training.", "emergence transformer_d"),
    ("theory", theory, "Compute by information flow how many layers a task takes.", "depth"),
    ("llm", llm, "Write the paper's prompts, and test language models on them.", "prompts equations --steps 5"),
):
    epilog = f"Example: retrieval-interp {group} {example}"
    app.add_typer(grouped.app, name=group, help=said, epilog=epilog, rich_help_panel="Groups")


def shown(asked: bool) -> None:
    """Print the version, if it was asked for, and end."""
    if asked:
        typer.echo(f"retrieval-interp {version('retrieval-interp')}")
        raise typer.Exit


@app.callback()
def about(
    _: Annotated[bool, typer.Option("--version", callback=shown, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Test a hypothesis about a transformer's attention heads."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line.

    Exits with code 2 and one line on standard error for bad input, 130 when interrupted, 141 if its reader ends first.
    """
    try:
        given = [from_home(argument) for argument in (sys.argv[1:] if arguments is None else arguments)]
        if "" in given:  # as a path it would be the folder of the shell
            raise BadInput(f"the argument after {[sys.argv[0], *given][given.index('')]} is empty; expected a value")
        code = app(given, standalone_mode=False) or 0
        print(end="", flush=True)  # nothing if standard output was closed
        if code == 130:  # typer returns 130 after Ctrl-C
            raise Interrupted("interrupted")
        sys.exit(code)
    except SystemExit as ended:  # for a closed pipe click has 1, which would be a verdict
        sys.exit(141 if isinstance(ended.__context__, BrokenPipeError) else ended.code)
    except UsageError as error:
        complain(f"{error.format_message().replace('Value error, ', '').removesuffix('.')} (see --help)")
    except BadInput as error:
        complain(str(error))
    except OSError as error:
        # Standard output is broken; without this, Python would report the error again at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        if isinstance(error, BrokenPipeError):
            sys.exit(141)
        reason = error.strerror or error
        complain(f"{error.filename}: {reason}" if error.filename else f"standard output cannot be written ({reason})")
    except (Interrupted, typer.Abort, KeyboardInterrupt) as stopped:
        print(str(stopped) or "interrupted", file=sys.stderr)
        sys.exit(130)


def from_home(argument: str) -> str:
    """Replace ``~`` with the home folder, also in ``--out=~/x``, where not every shell does."""
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    return option + equals + os.path.expanduser(value)


def complain(message: str) -> None:
    """Print one line on standard error and exit with code 2."""
    print(f"retrieval-interp: {printable(' '.join(message.split()))}", file=sys.stderr)
    sys.exit(2)

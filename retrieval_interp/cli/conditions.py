"""The commands of the study that train small models under several conditions, and compare them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import MOST_SEEDS, Json
from retrieval_interp.cli.terminal import print_json, records, runs_bar

if TYPE_CHECKING:
    from retrieval_interp.models.presets import Preset

app = typer.Typer()
PresetName = Annotated[str, typer.Option(help="Preset to train, a small one.")]
Seeds = Annotated[int, typer.Option(min=2, max=MOST_SEEDS, help="Number of runs under each condition.")]
Steps = Annotated[int | None, typer.Option(min=1, help="Number of training steps (default: the preset's).")]


def _with_steps(preset: str, steps: int | None) -> "Preset":
    """Return a preset, with another number of training steps if one is given.

    Raises:
        BadInput: there is no such preset.
    """
    from retrieval_interp.models.presets import preset as named

    chosen = named(preset)
    return chosen if steps is None else replace(chosen, recipe=replace(chosen.recipe, steps=steps))


def _report(
    as_json: bool, command: str, page: Path, said: Sequence[str], *, decided: bool = True, **results: Any
) -> None:
    """Print what was found, in words, and where the page is; or with ``--json`` one document with the results.

    Raises:
        typer.Exit: the question is not decided; the exit code is 1.
    """
    from retrieval_interp.models.provenance import versions

    if as_json:
        print_json(command, versions(), **results)
    else:
        for sentence in said:
            typer.echo(sentence)
        typer.echo(f"The page is at {page}")
    if not decided:
        raise typer.Exit(1)


@app.command("depth-sweep")
def depth_sweep(
    hops: Annotated[list[int] | None, typer.Argument(help="Numbers of hops D (default: 1 and 2).")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs of every model.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Maximum number of training steps of a run.")] = 6000,
    out: Annotated[
        Path, typer.Option(help="Folder for the runs, depth_sweep.csv and the page; unfinished work is continued.")
    ] = Path("reports/depth_sweep"),
    as_json: Json = False,
) -> None:
    """Train small models with too few layers and with enough, to test the bound on depth."""
    asked = list(dict.fromkeys(hops or (1, 2)))
    if not all(1 <= n <= 7 for n in asked):
        raise BadInput(f"{', '.join(map(str, asked))} hops; expected whole numbers from 1 to 7")
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import depth_sweep as room
    from retrieval_interp.experiments.depth_sweep_page import FILES, write_depth_sweep

    for name in FILES:
        check_writable(out / name)
    with runs_bar() as progress:
        runs = room.experiment(asked, seeds, steps, out, progress)
    command = f"retrieval-interp study depth-sweep {' '.join(map(str, asked))} --seeds {seeds} --steps {steps}"
    page = write_depth_sweep(runs, out, command)
    _report(as_json, command, page, room.sentences(runs), rows=records(room.table(runs)))

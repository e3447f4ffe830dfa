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


@app.command()
def interventions(
    preset: PresetName = "tiny",
    seeds: Seeds = 6,
    steps: Steps = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page; unfinished work is continued.")] = Path(
        "reports/interventions"
    ),
    as_json: Json = False,
) -> None:
    """Train models with attention paths forced or forbidden, to test whether later heads need earlier ones."""
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import interventions as room
    from retrieval_interp.experiments.interventions_page import PAGE, write_interventions
    from retrieval_interp.experiments.runs import RUNS

    chosen = _with_steps(preset, steps)
    for name in (RUNS, PAGE):
        check_writable(out / name)
    with runs_bar() as progress:
        outcomes = room.experiment(preset, chosen, seeds, out, progress)
    command = f"retrieval-interp study interventions --preset {preset} --seeds {seeds} --steps {chosen.recipe.steps}"
    page = write_interventions(outcomes, out, command)
    _report(as_json, command, page, room.sentences(outcomes), rows=records(room.summary(outcomes)))


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


@app.command("fewer-layers")
def fewer_layers(
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Number of runs of every model.")] = 10,
    steps: Annotated[int, typer.Option(min=1, help="Maximum number of training steps of a run.")] = 6000,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page; unfinished work is continued.")] = Path(
        "reports/fewer_layers"
    ),
    as_json: Json = False,
) -> None:
    """Train models with one layer fewer than the bound on depth, and ask how those do it that learn the symbol.

    Exits with 1 if a question is undecided.
    """
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import fewer_layers as room
    from retrieval_interp.experiments.fewer_layers_page import FILES, write_fewer_layers
    from retrieval_interp.experiments.fewer_layers_rules import rows, sentences

    for name in FILES:
        check_writable(out / name)
    with runs_bar() as progress:
        outcomes = room.experiment(seeds, steps, out, progress)
    command = f"retrieval-interp study fewer-layers --seeds {seeds} --steps {steps}"
    page = write_fewer_layers(outcomes, out, command)
    said = sentences(outcomes)
    decided = not any("undecided" in sentence for sentence in said)
    _report(as_json, command, page, said, decided=decided, rows=rows(outcomes), sentences=said)


@app.command("thinking-ahead")
def thinking_ahead(
    preset: PresetName = "tiny",
    seeds: Seeds = 5,
    steps: Steps = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page; unfinished work is continued.")] = Path(
        "reports/thinking_ahead"
    ),
    as_json: Json = False,
) -> None:
    """Train models whose losses reach their own position only, to test whether pairs compute for later queries.

    Exits with 1 if that is undecided.
    """
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import thinking_ahead as room
    from retrieval_interp.experiments.thinking_ahead_page import FILES, write_thinking_ahead

    chosen = _with_steps(preset, steps)
    for name in FILES:
        check_writable(out / name)
    with runs_bar() as progress:
        outcomes = room.experiment(preset, chosen, seeds, out, progress)
    command = f"retrieval-interp study thinking-ahead --preset {preset} --seeds {seeds} --steps {chosen.recipe.steps}"
    page = write_thinking_ahead(outcomes, out, command)
    tables = {"losses": records(room.summary(outcomes)), "arose": records(room.arose(outcomes))}
    verdict = room.verdict(outcomes)
    decided = verdict != "undecided"
    _report(as_json, command, page, room.sentences(outcomes), decided=decided, verdict=verdict, **tables)


@app.command("thinking-without-words")
def thinking_without_words(
    hops: Annotated[int, typer.Option(min=2, max=7, help="Number of hops D.")] = 4,
    seeds: Seeds = 5,
    steps: Annotated[int, typer.Option(min=1, help="Number of training steps.")] = 1200,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page; unfinished work is continued.")] = Path(
        "reports/thinking_without_words"
    ),
    as_json: Json = False,
) -> None:
    """Train models of two layers that read words, their own residual streams or nothing, to test what extends depth.

    Exits with 1 if a question is undecided.
    """
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import thinking_without_words as room
    from retrieval_interp.experiments.thinking_without_words_page import FILES, write_thinking_without_words

    for name in FILES:
        check_writable(out / name)
    with runs_bar() as progress:
        outcomes = room.experiment(hops, steps, seeds, out, progress)
    command = f"retrieval-interp study thinking-without-words --hops {hops} --seeds {seeds} --steps {steps}"
    page = write_thinking_without_words(outcomes, out, command)
    verdicts = room.verdicts(outcomes)
    decided, table = "undecided" not in verdicts.values(), records(room.summary(outcomes))
    _report(as_json, command, page, room.sentences(outcomes), decided=decided, verdicts=verdicts, rows=table)

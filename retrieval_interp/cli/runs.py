"""The commands of the study that compare finished training runs."""

from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import AtOnce, Json, Seed
from retrieval_interp.cli.terminal import print_json, progress_bar, records

app = typer.Typer()


@app.command()
def mirage(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN ...", help="Folders of training runs with checkpoints, or names such as transformer_d."
        ),
    ],
    sweep: Annotated[
        Path | None, typer.Option(help="The runs.csv of a sweep: its squared errors are compared over depth, too.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for mirage.html and the tables.")] = Path("reports/mirage"),
    examples: AtOnce = 512,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure runs by several metrics, to test whether what emerges is a mirage of the metric (section 10).

    Exits with 1 if that is undecided, over training or over depth.
    """
    from circuits.utils.files import check_writable
    from circuits.utils.progress import part_of
    from retrieval_interp.experiments.shifts import check_shiftable
    from retrieval_interp.mirage import depth_ways
    from retrieval_interp.mirage import mirage as room
    from retrieval_interp.mirage.metric_curves import metric_curves
    from retrieval_interp.mirage.mirage_page import FILES, write_mirage
    from retrieval_interp.models import library
    from retrieval_interp.models.provenance import versions
    from retrieval_interp.sweep.runs_table import read_runs

    names = [Path(run).name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise BadInput(f"{name}: two runs have this name; expected folders of different names")
    folders = [library.find(run) for run in runs]
    for name, folder in zip(names, folders, strict=True):  # before the slow part
        check_shiftable(library.own_task(folder), name)
    swept = read_runs(sweep) if sweep else []
    for name in FILES:
        check_writable(out / name)
    measured = []
    with progress_bar("measuring the runs") as progress:
        for place, (name, folder) in enumerate(zip(names, folders, strict=True)):
            part = part_of(progress, place / len(names), (place + 1) / len(names))
            measured.append(metric_curves(folder, name, examples, seed, part))
    found = [risen for run in measured if run.over_training for risen in room.rises(run)]
    ways = [*depth_ways.ways_of_runs(measured), *depth_ways.ways_of_sweep(swept)]
    of = f" --sweep {sweep}" if sweep else ""
    command = f"retrieval-interp study mirage {' '.join(runs)}{of} --examples {examples} --seed {seed}"
    page = write_mirage(measured, found, ways, out, command)
    training = room.verdict(found)
    depth = {group: depth_ways.depth_verdict(ways, group) for group in dict.fromkeys(way.group for way in ways)}
    if as_json:
        inside = {run.name: room.inside(found, run.name) for run in measured if run.over_training}
        verdicts = {"training": training, "inside": inside, "depth": depth}
        tables = {"counts": room.counts_table(found), "depth_kinds": depth_ways.depth_kinds(ways)}
        tables["compared"] = room.compared_table(found)
        tables |= {"rises": room.rises_table(found), "depth": depth_ways.depth_table(ways)}
        made = [{"run": run.name, "seed": run.seed, "layers": run.n_layers, "source": run.source} for run in measured]
        rows = {name: records(table) for name, table in tables.items()}
        print_json(command, versions(), verdicts=verdicts, runs=made, **rows)
    else:
        for sentence in [*room.sentences(measured, found), *depth_ways.depth_sentences(ways)]:
            typer.echo(sentence)
        typer.echo(f"The page is at {page}")
    raise typer.Exit(1 if room.UNDECIDED in (training, *depth.values()) else 0)

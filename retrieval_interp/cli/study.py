"""The commands of the study: attention through the training of one model, and the training of many."""

import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Json, Seed, runs_model
from retrieval_interp.cli.terminal import print_json, progress_bar, records, runs_bar
from retrieval_interp.sweep.plan import KNOWN, find_plan, load_plan

app = typer.Typer()
Scale = Literal["paper", "laptop"]


@app.command(epilog="Example: retrieval-interp study emergence runs/latest")
@runs_model
def emergence(
    run_dir: Annotated[str, typer.Argument(help="Folder of a training run, or a name such as transformer_d.")],
    circuit: Annotated[
        Path | None,
        typer.Option(
            help="Circuit YAML (default: that of RUN_DIR, or without one all paths with attention above 0.5 at times)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for emergence.html and the tables.")] = Path("reports/emergence"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure when each attention path of a circuit emerges in training (section 9, Appendix D)."""
    import circuits
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments.emergence import circuit_to_follow
    from retrieval_interp.experiments.emergence import emergence as follow
    from retrieval_interp.experiments.emergence_page import FILES, write_emergence
    from retrieval_interp.experiments.observations import observations
    from retrieval_interp.models import library

    run = library.find(run_dir)
    hypothesis = circuits.load_circuit(circuit) if circuit else circuit_to_follow(run)
    for name in FILES:
        check_writable(out / name)
    with progress_bar("following the paths") as progress:
        followed = follow(run, hypothesis, seed=seed, progress=progress)
    command = f"retrieval-interp study emergence {run_dir} --seed {seed}"
    chosen = f"{command} --circuit {circuit}" if circuit else command
    page = write_emergence(followed, Path(run_dir).name, out, followed.kept or command, chosen)
    said = observations(followed)
    if as_json:
        table = followed.table()
        observed = [{**one.model_dump(), "sentence": one.sentence} for one in said]
        print_json(chosen, {"source": followed.source}, paths=records(table.reset_index()), observations=observed)
        return
    typer.echo(f"Attention from {followed.source}")
    for path, step in followed.emerged.items():
        typer.echo(f"{path:40} " + (f"step {step:.0f}" if step is not None else "never"))
    for one in said:
        typer.echo(f"{one.name:>4} {one.decision}: {one.sentence}")
    typer.echo(f"The page is at {page}")


@app.command(epilog="Example: retrieval-interp study sweep figure4 --scale laptop")
def sweep(
    plan: Annotated[str, typer.Argument(help=f"Plan: {KNOWN}; or a YAML file of presets and seeds.")],
    scale: Annotated[Scale | None, typer.Option(help="Size of the models of figure4 (default: laptop).")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs (default: in reports/sweeps); unfinished runs are continued."),
    ] = None,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")] = "auto",
    as_json: Json = False,
) -> None:
    """Train many models and compare them (section 7, figure 4).

    Exits with 1 if runs failed.
    """
    if scale and plan != "figure4":
        raise BadInput("--scale needs the plan figure4")
    from circuits.utils.files import check_writable, write_together
    from retrieval_interp.models.provenance import versions
    from retrieval_interp.sweep.figure4 import figure4_figure, figure4_table
    from retrieval_interp.sweep.run import results
    from retrieval_interp.sweep.run import sweep as train_all
    from retrieval_interp.training.training_step import choose_device

    runs = load_plan(path := find_plan(plan, scale or "laptop"))
    folder = out or Path("reports/sweeps") / path.stem
    for file in (files := [folder / name for name in ("figure4.csv", "runs.csv", "figure4.html")]):
        check_writable(file)
    choose_device(device)
    with runs_bar() as progress:
        failures = train_all(runs, folder, device, progress)
    from circuits.figures.page import PLOTLY_CONFIG

    command = shlex.join(["retrieval-interp", "study", "sweep", plan, *(["--scale", scale] if scale else [])])
    finished = results(runs, folder)
    table = figure4_table(finished)
    if len(finished):
        texts = [f"# {command}\n{rows.to_csv(index=False)}" for rows in (table, finished)]
        page = figure4_figure(finished).to_html(config=PLOTLY_CONFIG)
        write_together(dict(zip(files, [*texts, page], strict=True)))
    for run, reason in failures.items():
        typer.echo(f"{run} failed: {reason}", err=True)
    if as_json:
        failed = [{"run": str(run), "reason": reason} for run, reason in failures.items()]
        print_json(command, versions(), rows=records(table), failures=failed)
    else:
        typer.echo(table.drop(columns="family").to_string(index=False, float_format="{:.4f}".format))
        typer.echo(f"The figure is at {files[-1]}" if len(finished) else "No run is finished.")
    raise typer.Exit(1 if failures else 0)

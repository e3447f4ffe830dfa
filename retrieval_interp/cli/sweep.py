"""The command that trains many models."""

import shlex
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Json
from retrieval_interp.cli.terminal import print_json, records, runs_bar
from retrieval_interp.sweep.known_plans import known_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from retrieval_interp.sweep.job import Failure

app = typer.Typer()


class EngineName(StrEnum):
    """The place where models are trained."""

    LOCAL = "local"
    RAY = "ray"


class Scale(StrEnum):
    """The size of the models of a sweep."""

    PAPER = "paper"
    LAPTOP = "laptop"


@app.command()
def sweep(
    plan: Annotated[
        str,
        typer.Argument(help=f"Plan: {known_plans()}; or a YAML file of presets and seeds."),
    ],
    scale: Annotated[Scale | None, typer.Option(help="Size of the models of figure4 (default: laptop).")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the store (default: in reports/sweeps); unfinished work in it is continued."),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Place of training: this machine, or a Ray cluster.")
    ] = EngineName.LOCAL,
    address: Annotated[
        str, typer.Option(help="Address host:port of the cluster's head; auto: a cluster on this machine.")
    ] = "auto",
    gpus: Annotated[float, typer.Option(min=0, help="Share of a GPU that a job takes on the cluster.")] = 0,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")] = "auto",
    weights: Annotated[bool, typer.Option(help="Keep the weights of every run.")] = False,
    as_json: Json = False,
) -> None:
    """Train many models and compare them (section 7, figure 4).

    Exits with 1 if runs failed repeatedly.
    """
    if engine is EngineName.LOCAL and (address != "auto" or gpus):
        raise BadInput("--address and --gpus need --engine ray")
    if scale and plan != "figure4":
        raise BadInput("--scale needs the plan figure4")
    from circuits.utils.files import check_writable
    from retrieval_interp.figure4.figure4 import figure4_sentences, table
    from retrieval_interp.figure4.figure4_page import FILES, write_figure4
    from retrieval_interp.models.model_dir import WEIGHTS
    from retrieval_interp.sweep.cluster import connect, on_cluster
    from retrieval_interp.sweep.local import local
    from retrieval_interp.sweep.plan import load_plan
    from retrieval_interp.sweep.run import Engine
    from retrieval_interp.sweep.run import sweep as run_sweep
    from retrieval_interp.sweep.store import Store
    from retrieval_interp.training.training_step import check_device_name, choose_device

    chosen = load_plan(plan, scale or Scale.LAPTOP)
    folder = out or Path("reports/sweeps") / chosen.name
    for name in FILES:
        check_writable(folder / name)
    if engine is EngineName.RAY:
        check_device_name(device)
        worked: Callable[..., Any] = partial(on_cluster, ray=connect(address, gpus), gpus=gpus)
    else:
        choose_device(device)
        worked = local
    from retrieval_interp.sweep.training import train_run

    train: Engine = partial(worked, work=partial(train_run, device=device, weights=weights))
    store = Store(folder)
    for result in store.results(chosen.runs):  # reports a damaged run before the others are trained
        if weights and not store.has(result.run, WEIGHTS):
            raise BadInput(f"{store.path(result.run)}: the run has no weights; choose another folder")
    with runs_bar() as progress:
        failures = run_sweep(chosen.runs, store, train, progress)
    results = store.results(chosen.runs)
    command = shlex.join(["retrieval-interp", "study", "sweep", plan, *(["--scale", scale] if scale else [])])
    page = write_figure4(results, folder, command) if results else None
    _tell(command, table(results), figure4_sentences(results), failures, page, as_json)


def _tell(
    command: str,
    rows: "pd.DataFrame",
    said: "Sequence[str]",
    failures: "Sequence[Failure]",
    page: Path | None,
    as_json: bool,
) -> NoReturn:
    """Print the results of a sweep, and exit with 1 if runs failed."""
    from retrieval_interp.models.provenance import versions

    for failure in failures:
        typer.echo(f"{failure.run} failed: {failure.reason}", err=True)
    if as_json:
        failed = [{"run": str(failure.run), "reason": failure.reason} for failure in failures]
        print_json(command, versions(), sentences=said, rows=records(rows), failures=failed)
    else:
        for sentence in said:
            typer.echo(sentence)
        if page is not None:
            typer.echo(f"The page is at {page}")
    raise typer.Exit(1 if failures else 0)

"""Commands on many models at once."""

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import Json
from retrieval_interp.cli.terminal import training_bar

app = typer.Typer()


class EngineName(StrEnum):
    """Where models are trained."""

    LOCAL = "local"
    RAY = "ray"


class Scale(StrEnum):
    """How large the models of a sweep are."""

    PAPER = "paper"
    LAPTOP = "laptop"


@app.command()
def sweep(
    plan: Annotated[str, typer.Argument(help="figure4, curricula, census, or a YAML file of presets with seeds.")],
    scale: Annotated[Scale, typer.Option(help="Of figure4: the paper's size, or one for two cores and two hours.")] = (
        Scale.LAPTOP
    ),
    out: Annotated[Path | None, typer.Option(help="The store (default: in reports/sweeps); goes on there.")] = None,
    engine: Annotated[EngineName, typer.Option(help="Train on this machine, or on a Ray cluster.")] = EngineName.LOCAL,
    address: Annotated[str, typer.Option(help="Of the cluster's head, host:port; auto: this machine's.")] = "auto",
    gpus: Annotated[float, typer.Option(min=0, help="The share of a GPU that a job takes on the cluster.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    weights: Annotated[bool, typer.Option(help="Keep the weights of every run too.")] = False,
    as_json: Json = False,
) -> None:
    """Train many models (section 7), and compare them: figure 4.

    Exits with 1 where runs failed, again and again.
    """
    from circuits.files import check_writable
    from retrieval_interp.provenance import versions
    from retrieval_interp.sweep.cluster import connect, on_cluster
    from retrieval_interp.sweep.figure4 import sentences, table
    from retrieval_interp.sweep.figure4_page import FILES, write_figure4
    from retrieval_interp.sweep.local import local
    from retrieval_interp.sweep.plan import load_plan
    from retrieval_interp.sweep.run import Engine
    from retrieval_interp.sweep.run import sweep as run_sweep
    from retrieval_interp.sweep.store import Store
    from retrieval_interp.training_step import choose_device

    chosen = load_plan(plan, scale)
    folder = out or Path("reports/sweeps") / chosen.name
    for name in FILES:
        check_writable(folder / name)
    if engine is EngineName.RAY:
        train: Engine = partial(on_cluster, ray=connect(address, gpus), gpus=gpus, device=device, weights=weights)
    else:
        choose_device(device)
        train = partial(local, device=device, weights=weights)
    store = Store(folder)
    with training_bar() as progress:
        failures = run_sweep(chosen, store, train, progress)
    results = [store.result(run) for run in chosen.runs if store.has(run)]
    for failure in failures:
        typer.echo(f"{failure.run} failed: {failure.reason}", err=True)
    if not results:
        raise typer.Exit(1)
    command = f"retrieval-interp sweep {plan}" + (f" --scale {scale}" if plan == "figure4" else "")
    page = write_figure4(results, folder, command)
    if as_json:
        rows = json.loads(table(results).to_json(orient="records"))
        failed = [{"run": str(failure.run), "reason": failure.reason} for failure in failures]
        print(json.dumps({"command": command, **versions(), "rows": rows, "failures": failed}, indent=2))
    else:
        for sentence in sentences(results):
            typer.echo(sentence)
        typer.echo(f"The page is at {page}")
    raise typer.Exit(1 if failures else 0)

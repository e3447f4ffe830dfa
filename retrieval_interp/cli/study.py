"""Commands of the study: how circuits emerge in training, whether the order is causal, and what the paper claims."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import MOST_SEEDS, AtOnce, CircuitFile, Json, Model, Seed
from retrieval_interp.cli.terminal import print_claims, progress_bar, runs_bar

app = typer.Typer()


@app.command()
def emergence(
    run_dir: Annotated[str, typer.Argument(help="Folder of a run, or a name such as transformer_d.")],
    circuit: Annotated[Path | None, typer.Option(help="Circuit YAML (default: the one in RUN_DIR).")] = None,
    out: Annotated[Path, typer.Option(help="Folder for emergence.html and the tables.")] = Path("reports/emergence"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """When did each attention path of a circuit emerge in training? (Section 9, Appendix D.)"""
    import circuits
    from circuits.files import check_writable
    from retrieval_interp import emergence as room
    from retrieval_interp import library
    from retrieval_interp.emergence_page import FILES, write_emergence
    from retrieval_interp.model_dir import CIRCUIT
    from retrieval_interp.observations import observations

    run = library.find(run_dir)
    if circuit is None and not (run / CIRCUIT).exists():
        raise BadInput(f"{run_dir}: holds no {CIRCUIT}; name one with --circuit")
    hypothesis = circuits.load_circuit(circuit or run / CIRCUIT)
    for name in FILES:
        check_writable(out / name)
    with progress_bar("following the paths") as progress:
        followed = room.emergence(run, hypothesis, seed=seed, progress=progress)
    command = f"retrieval-interp emergence {run_dir} --seed {seed}"
    chosen = f"{command} --circuit {circuit}" if circuit else command
    page = write_emergence(followed, Path(run_dir).name, out, followed.kept or command, chosen)
    said = observations(followed)
    if as_json:
        table = followed.table()
        emerged = json.loads(table.reset_index().to_json(orient="records"))
        document = {"source": followed.source, "paths": emerged, "observations": [asdict(one) for one in said]}
        print(json.dumps(document, indent=2))
        return
    typer.echo(f"Attention from {followed.source}")
    for path, step in followed.emerged.items():
        typer.echo(f"{path:40} " + (f"step {step:.0f}" if step is not None else "never"))
    for one in said:
        typer.echo(f"{one.name:>4} {one.verdict}: {one.sentence}")
    typer.echo(f"The page is at {page}")


@app.command()
def causality(
    preset: Annotated[str, typer.Option(help="What to train; it should be small.")] = "tiny",
    seeds: Annotated[int, typer.Option(min=2, max=MOST_SEEDS, help="Runs under each condition.")] = 6,
    steps: Annotated[int | None, typer.Option(min=1, help="Train longer or shorter than the preset says.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the runs and the page; goes on there.")] = Path(
        "reports/causality"
    ),
    as_json: Json = False,
) -> None:
    """Do later heads need the induction head to emerge? Trains with paths forced on, or forbidden."""
    from circuits.files import check_writable
    from retrieval_interp import causality as room
    from retrieval_interp.causality_page import PAGE, write_causality
    from retrieval_interp.experiments import RUNS
    from retrieval_interp.presets import preset as named
    from retrieval_interp.provenance import versions

    chosen = named(preset)
    if steps is not None:
        chosen = replace(chosen, recipe=replace(chosen.recipe, steps=steps))
    for name in (RUNS, PAGE):
        check_writable(out / name)
    with runs_bar() as progress:
        outcomes = room.experiment(preset, chosen, seeds, out, progress)
    command = f"retrieval-interp causality --preset {preset} --seeds {seeds} --steps {chosen.recipe.steps}"
    page = write_causality(outcomes, out, command)
    table = room.summary(outcomes)
    if as_json:
        rows = json.loads(table.to_json(orient="records"))
        print(json.dumps({"command": command, **versions(), "rows": rows}, indent=2))
        return
    for sentence in room.sentences(outcomes):
        typer.echo(sentence)
    typer.echo(f"The page is at {page}")


@app.command()
def elimination(
    model_dir: Model,
    circuit: CircuitFile = None,
    examples: AtOnce = 256,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """How does the symbol of a slot that a head leaves out come to the query? Attention rows changed, one at a time.

    Exits with 0 if the answers follow what is changed, 1 if not, 2 on bad input.
    """
    from circuits.circuit_file import load_circuit
    from retrieval_interp import library
    from retrieval_interp.elimination import elimination as measured
    from retrieval_interp.elimination import partial_path
    from retrieval_interp.provenance import about
    from retrieval_interp.task import RetrievalTask, StepOrder

    folder = library.find(model_dir)
    if not isinstance(task := library.own_task(folder), RetrievalTask) or task.step_order is StepOrder.ANY:
        raise BadInput(f"{model_dir}: expected a model of the retrieval problem whose pairs stand in blocks")
    hypothesis = library.own_circuit(folder) if circuit is None else load_circuit(circuit)
    if hypothesis is None:
        raise BadInput(f"{model_dir}: holds no circuit.yaml; name one with --circuit")
    partial_path(hypothesis, task)  # before the model is loaded, which takes longer
    model = library.load(folder).model
    with progress_bar("changing rows") as progress:
        found = measured(model, task, hypothesis, n_examples=examples, seed=seed, progress=progress)
    if as_json:
        of = f" --circuit {circuit}" if circuit else ""
        command = f"retrieval-interp elimination {model_dir}{of} --examples {examples} --seed {seed}"
        rows = json.loads(found.table().to_json(orient="records"))
        said = {"path": str(found.path), "left_out": found.left_out, "holds": found.holds, "rows": rows}
        print(json.dumps({"command": command, **about(model_dir, model), **said}, indent=2))
    else:
        typer.echo(f"{found.path} leaves out slot {found.left_out}. Shares of answers nearest to each slot's symbol:")
        typer.echo(found.table().round(2).to_string(index=False))
        typer.echo(f"The answers {'follow' if found.holds else 'do not follow'} what is changed.")
    raise typer.Exit(0 if found.holds else 1)


@app.command()
def claims(as_json: Json = False) -> None:
    """Every quantitative claim of the paper, beside what was measured here.

    Exits with 1 when a table that a claim needs is missing.
    """
    from retrieval_interp.claims.ledger import ledger
    from retrieval_interp.claims.tables import TableMissing
    from retrieval_interp.library import data_folder

    try:
        rows = ledger(data_folder())
    except TableMissing as missing:
        typer.echo(str(missing), err=True)
        raise typer.Exit(1) from None
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_claims(rows)

"""Commands that make models, and share them."""

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Interrupted, Json, Model

app = typer.Typer()


@app.command()
def train(
    preset: Annotated[str | None, typer.Argument(help="Name of a preset; `presets` lists them.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/latest"),
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data (default: the preset's).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Train longer or shorter than the preset says.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Another field of the recipe, as in `presets --json`; repeatable."
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, bit for bit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compile: Annotated[bool, typer.Option(help="Use torch.compile where it works.")] = True,
) -> None:
    """Train a preset, with a log and checkpoints; Ctrl-C saves."""
    from retrieval_interp import training
    from retrieval_interp.training_step import choose_device

    if resume:
        if preset is not None or seed is not None or steps is not None or changes:
            raise BadInput("--resume takes preset, seed, steps and recipe from the run; leave them out")
    elif preset is None:
        raise BadInput("name a preset; `retrieval-interp presets` lists them")
    else:
        recipe = dict(map(_recipe_field, changes or ()))
        if steps is not None:
            recipe["steps"] = steps
        training.check_start(out, preset, seed, **recipe)
        choose_device(device)  # refuses one that is not there before a folder is made
        training.start_run(out, preset, seed=seed, **recipe)
    try:
        training.train(out, device, compile)
    except training.TrainingStopped as stopped:
        raise Interrupted(f"{stopped}. Go on with: retrieval-interp train --resume --out {out}") from None
    except training.TrainingDiverged as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"The trained model is in {out}")


def _recipe_field(change: str) -> tuple[str, Any]:
    """``warmup=100`` as a name and a value: JSON, none, or a word."""
    from retrieval_interp.presets import Recipe

    name, equals, text = change.partition("=")
    known = [field.name for field in fields(Recipe)]
    if not equals or name not in known:
        raise BadInput(f"--set {change!r}; expected NAME=VALUE, where NAME is one of {', '.join(known)}")
    try:
        return name, None if text == "none" else json.loads(text)
    except ValueError:
        return name, text


@app.command()
def presets(as_json: Json = False) -> None:
    """List the presets: every model of the paper, and some small ones."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from retrieval_interp.presets import PRESETS
    from retrieval_interp.tasks import describe, problem_of

    if as_json:
        described = {name: {**asdict(p), "task": describe(p.task)} for name, p in PRESETS.items()}
        print(json.dumps(described, indent=2))
        return
    table = Table(box=SIMPLE_HEAD, padding=0)
    for column in ("preset", "problem", "asked", "layers x heads, d_model", "MLP", "recipe", "steps", "lr", "seed"):
        table.add_column(column, no_wrap=True)
    for name, p in PRESETS.items():
        shape, asked = p.architecture, p.task.asked.replace(" ... ", "-")
        size = f"{shape.n_layers} x {shape.n_heads}, {shape.d_model}"
        cells = (name, problem_of(p.task), asked, size)
        recipe = "paper" if p.recipe.is_of_the_paper else "small"
        trained = (recipe, p.recipe.steps, f"{p.recipe.lr:g}", p.seed)
        table.add_row(*map(str, (*cells, "yes" if shape.mlp else "no", *trained)))
    Console().print(table)
    for name, example in {"paper": "transformer_a", "small": "tiny"}.items():
        typer.echo(f"Recipe {name}: {PRESETS[example].recipe.sentence}.")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    to: Annotated[Path, typer.Argument(help="The model directory to write.")],
    checkpoint: Annotated[list[int] | None, typer.Option(help="A step whose checkpoint to keep; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Make a small model directory of a finished run, in half precision where that leaves the loss as it is."""
    from retrieval_interp.export import export as write_export

    measured = write_export(run, to, checkpoint or ())
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        loss = measured["loss_float32"]
        parts = ", ".join(f"{name} {value:.4f}" for name, value in loss["parts"].items())
        typer.echo(f"loss {loss['mean']:.5f} ± {loss['standard_error']:.5f} ({parts}), {measured['examples']} examples")
        typer.echo(
            f"in half precision {measured['loss_float16']['mean']:.5f}; written as {measured['precision']} to {to}"
        )


@app.command()
def card(model_dir: Model) -> None:
    """Write the model card of a model directory, README.md: how it was made, its losses, its circuit."""
    from circuits.files import write_atomically
    from retrieval_interp import library
    from retrieval_interp.card import CARD, model_card

    folder = library.find(model_dir)
    write_atomically(folder / CARD, model_card(folder, model_dir))
    typer.echo(f"The card is at {folder / CARD}")


@app.command()
def push(
    model_dir: Model,
    address: Annotated[str, typer.Argument(help="hf:owner/name; made where it is not there yet.")],
) -> None:
    """Share a model directory through the Hugging Face Hub; anyone loads it by that address."""
    from retrieval_interp import library, sharing

    typer.echo(f"Shared at {sharing.push(library.find(model_dir), address)}")

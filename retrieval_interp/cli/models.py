"""The commands that list, export and share models."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import Json, Model

app = typer.Typer()


@app.command()
def presets(as_json: Json = False) -> None:
    """List the presets: all models of the paper, and small ones."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Column, Table

    from retrieval_interp.models.presets import PRESETS
    from retrieval_interp.tasks.registry import describe, problem_of

    if as_json:
        described = {name: {**asdict(p), "task": describe(p.task)} for name, p in PRESETS.items()}
        print(json.dumps(described, indent=2))
        return
    texts, numbers = ("preset", "problem", "asked", "size", "MLP", "recipe"), ("steps", "lr", "seed")
    table = Table(
        *(Column(title, overflow="fold") for title in texts),
        *(Column(title, justify="right", no_wrap=True) for title in numbers),
        box=SIMPLE_HEAD,
        padding=0,
    )
    for name, p in PRESETS.items():
        shape, asked = p.architecture, p.task.asked.replace(" ... ", "-")
        size = f"{shape.n_layers} x {shape.n_heads}, {shape.d_model}"
        cells = (name, problem_of(p.task), asked, size)
        trained = (p.recipe.name, p.recipe.steps, f"{p.recipe.lr:g}", p.seed)
        table.add_row(*map(str, (*cells, "yes" if shape.mlp else "no", *trained)))
    Console().print(table)
    typer.echo("Size: layers x heads, d_model.")
    for name, example in {"gpt": "transformer_a", "small": "tiny"}.items():
        typer.echo(f"Recipe {name}: {PRESETS[example].recipe.sentence}.")


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished training run.")],
    to: Annotated[Path, typer.Argument(help="Model directory to write.")],
    checkpoint: Annotated[list[int] | None, typer.Option(help="Step of a checkpoint to keep; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Export a finished run as a small model directory, in half precision if the loss allows it."""
    from retrieval_interp.publishing.export import export as write_export

    measured = write_export(run, to, checkpoint or ())
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        loss = measured["loss_float32"]
        parts = ", ".join(f"{name} {value:.4f}" for name, value in loss["components"].items())
        typer.echo(f"loss {loss['mean']:.5f} ± {loss['standard_error']:.5f} ({parts}), {measured['examples']} examples")
        typer.echo(
            f"in half precision {measured['loss_float16']['mean']:.5f}; written as {measured['precision']} to {to}"
        )


@app.command()
def card(model_dir: Model) -> None:
    """Write a model card, README.md, with training, losses and circuit."""
    from circuits.utils.files import write_atomically
    from retrieval_interp.models import library
    from retrieval_interp.models.model_dir import CARD
    from retrieval_interp.publishing.card import model_card

    folder = library.find(model_dir)
    write_atomically(folder / CARD, model_card(folder, model_dir))
    typer.echo(f"The card is at {folder / CARD}")


@app.command()
def push(
    model_dir: Model,
    address: Annotated[str, typer.Argument(help="hf:owner/name; created if it does not exist.")],
) -> None:
    """Upload a model directory to the Hugging Face Hub."""
    from retrieval_interp.models import library
    from retrieval_interp.publishing import sharing

    typer.echo(f"Shared at {sharing.push(library.find(model_dir), address)}")

"""The commands that list, export and share models."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import Json, Model

app = typer.Typer()


@app.command(epilog="Example: retrieval-interp models presets")
def presets(as_json: Json = False) -> None:
    """List the presets: all models of the paper, and small ones.

    One line stands for a family such as figure4_ic_N, whose presets figure4_ic_1, figure4_ic_2, ... have N layers.
    """
    from retrieval_interp.cli.terminal import print_table
    from retrieval_interp.models.presets import FAMILIES, PRESETS
    from retrieval_interp.tasks.registry import describe, problem_of

    members = {f"{name}_{n}": member(n) for name, (most, member) in FAMILIES.items() for n in range(1, most + 1)}
    if as_json:
        described = {name: {**asdict(p), "task": describe(p.task)} for name, p in {**PRESETS, **members}.items()}
        print(json.dumps(described, indent=2))
        return
    rows = []
    families = {f"{name}_N": member(most) for name, (most, member) in FAMILIES.items()}
    for name, p in {**PRESETS, **families}.items():
        shape, recipe, asked = p.architecture, p.recipe, p.task.asked.replace(" ... ", "-")
        layers = f"1-{shape.n_layers}" if name in families else shape.n_layers
        size = f"{layers} x {shape.n_heads}, {shape.d_model}"
        said = (name, problem_of(p.task), asked, size, "yes" if shape.mlp else "no")
        rows.append((*said, recipe.steps, recipe.warmup, f"{recipe.lr:g}"))
    print_table(("preset", "problem", "asked", "layers x heads, d_model", "MLP"), ("steps", "warm-up", "lr"), rows)


@app.command(epilog="Example: retrieval-interp models export runs/latest my_model")
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished training run.")],
    to: Annotated[Path, typer.Argument(help="Model directory to write.")],
    checkpoint: Annotated[list[int] | None, typer.Option(help="Step of a checkpoint to keep; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Export a finished run as a small model directory with a model card, in half precision if the loss allows it."""
    from retrieval_interp.publishing.export import export as write_export

    measured = write_export(run, to, checkpoint or ())
    if as_json:
        print(json.dumps(measured, indent=2))
        return
    full, half = measured["loss_float32"], measured["loss_float16"]["mean"]
    typer.echo(f"loss {full['mean']:.5f} ± {full['standard_error']:.5f} on {measured['examples']} examples")
    typer.echo(f"in half precision {half:.5f}; written as {measured['precision']} to {to}")


@app.command(epilog="Example: retrieval-interp models push my_model hf:me/my_model")
def push(
    model_dir: Model,
    address: Annotated[str, typer.Argument(help="hf:owner/name; created if it does not exist.")],
) -> None:
    """Upload a model directory with its card to the Hugging Face Hub."""
    from retrieval_interp.models import library
    from retrieval_interp.publishing import sharing

    typer.echo(f"Shared at {sharing.push(library.find(model_dir), address)}")

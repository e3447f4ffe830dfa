"""The command that trains a preset."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Interrupted

app = typer.Typer()


@app.command(epilog="Example: retrieval-interp train induction --out runs/induction")
def train(
    preset: Annotated[str | None, typer.Argument(help="Name of a preset (see models presets).")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the training run.")] = Path("runs/latest"),
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data (default: 0).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of training steps (default: the preset's).")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="New value of a field of task, architecture or recipe (see models presets --json); repeatable.",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out, bit for bit.")] = False,
    device: Annotated[str, typer.Option(help="Device: auto, cpu, cuda or mps.")] = "auto",
    compile: Annotated[bool, typer.Option(help="Use torch.compile if it works.")] = True,
) -> None:
    """Train a preset, with a log and checkpoints; Ctrl-C saves the run."""
    from retrieval_interp.models.model_dir import resume_command
    from retrieval_interp.training import training
    from retrieval_interp.training.training_step import check_device_name

    check_device_name(device)
    changed = _changed([*(changes or ()), *([f"steps={steps}"] if steps else [])])
    if resume and (preset is not None or seed is not None or changed):
        raise BadInput("--resume takes preset, seed, steps and recipe from the run; leave these options out")
    if not resume:
        if preset is None:
            raise BadInput("name a preset; `retrieval-interp models presets` lists them")
        training.start_run(out, preset, seed=seed or 0, device=device, **changed)
    try:
        training.train_run(out, device, compile)
    except training.TrainingStopped as stopped:
        raise Interrupted(f"{stopped}. Continue with: {resume_command(out)}") from None
    except training.TrainingDiverged as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"The trained model is in {out}")


def _changed(texts: list[str]) -> dict[str, Any]:
    """Return the values of ``warmup=100`` and so on by name: JSON, none, or a word."""
    changed: dict[str, Any] = {}
    for name, equals, value in (text.partition("=") for text in texts):
        if not equals or name == "seed" or name in changed:
            raise BadInput(f"--set {name}: expected NAME=VALUE, each name once, and --seed for the seed")
        try:
            changed[name] = None if value == "none" else json.loads(value)
        except (ValueError, RecursionError):
            changed[name] = value
    return changed

"""The command that trains a preset."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import Interrupted

app = typer.Typer()


@app.command()
def train(
    preset: Annotated[str | None, typer.Argument(help="Name of a preset (see models presets).")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the training run.")] = Path("runs/latest"),
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data (default: the preset's).")] = None,
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
    from retrieval_interp.training.training_step import choose_device

    if resume:
        if preset is not None or seed is not None or steps is not None or changes:
            raise BadInput("--resume takes preset, seed, steps and recipe from the run; leave these options out")
    elif preset is None:
        raise BadInput("name a preset; `retrieval-interp models presets` lists them")
    else:
        changed = _changed(changes or ())
        if steps is not None:
            changed["steps"] = steps
        training.check_start(out, preset, seed, **changed)
        choose_device(device)  # raises before a folder is made
        training.start_run(out, preset, seed=seed, **changed)
    try:
        training.train_run(out, device, compile)
    except training.TrainingStopped as stopped:
        raise Interrupted(f"{stopped}. Continue with: {resume_command(out)}") from None
    except training.TrainingDiverged as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"The trained model is in {out}")


def _changed(texts: Sequence[str]) -> dict[str, Any]:
    """Return the new values by the name of their field."""
    changed: dict[str, Any] = {}
    for name, value in map(_change, texts):
        if name in ("seed", "steps"):
            raise BadInput(f"--set {name} is not known; use --{name}")
        if name in changed:
            raise BadInput(f"--set {name} is given twice; expected one value")
        changed[name] = value
    return changed


def _change(text: str) -> tuple[str, Any]:
    """Parse ``warmup=100`` into a name and a value: JSON, none, or a word."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"--set {text!r}; expected NAME=VALUE")
    try:
        return name, None if value == "none" else json.loads(value)
    except (ValueError, RecursionError):
        return name, value

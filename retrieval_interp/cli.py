"""The command line: every command's words; the work is done elsewhere."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

Out = Annotated[Path, typer.Option(help="Folder to write to.")]
Seed = Annotated[int | None, typer.Option(help="Seed of everything random in the run (default: the preset's).")]


@app.callback()
def about() -> None:
    """Hold a transformer against a hypothesis about its attention heads."""


@app.command()
def train(
    preset: Annotated[str | None, typer.Argument(help="A preset's name; see the list with `presets`.")] = None,
    out: Out = Path("runs/run"),
    seed: Seed = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Train longer or shorter than the preset says.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, bit for bit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compile: Annotated[bool, typer.Option(help="Use torch.compile where it works.")] = True,
) -> None:
    """Train a preset, with checkpoints and a log; Ctrl-C saves."""
    from dataclasses import replace

    from retrieval_interp import presets, training

    if resume:
        if preset is not None or seed is not None or steps is not None:
            raise BadInput("--resume takes preset, seed and steps from the run; leave them out")
    else:
        if preset is None:
            raise BadInput(f"which preset? One of {', '.join(presets.PRESETS)}")
        chosen = presets.preset(preset)
        if steps is not None:
            chosen = replace(chosen, recipe=replace(chosen.recipe, steps=steps))
        training.start_run(out, preset, chosen, chosen.seed if seed is None else seed)
    try:
        training.train(out, device, compile)
    except training.TrainingStopped as stopped:
        typer.echo(f"{stopped}. Go on with: retrieval-interp train --resume --out {out}", err=True)
        raise typer.Exit(130) from None
    except training.TrainingDiverged as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command line; bad input is one line on standard error and exit code 2."""
    try:
        app()
    except BadInput as error:
        print(f"retrieval-interp: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)

"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

MOST_SEEDS = 1000  # of small models that are trained to be compared

Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="A model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[Path | None, typer.Option("--circuit", help="Circuit YAML (default: the one in MODEL_DIR).")]
Examples = Annotated[int, typer.Option(help="Fresh examples to measure on.")]
AtOnce = Annotated[int, typer.Option(max=2**14, help="Fresh examples to measure on, all of them at once.")]
Seed = Annotated[int, typer.Option(help="Seed of the examples.")]
Threshold = Annotated[float, typer.Option(help="A loss below it counts as low; the paper takes 0.05.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]


class Interrupted(Exception):
    """Stopped by the user; the message says what is left."""

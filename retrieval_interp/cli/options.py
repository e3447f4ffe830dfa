"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput

MOST_SEEDS = 1000  # of small models that are trained to be compared


def usable_number(examples: int) -> int:
    """A number of examples that can be used."""
    from circuits.losses.sample import check_number

    check_number(examples)
    return examples


def usable_at_once(examples: int) -> int:
    """A number of examples that can be drawn."""
    if examples < 1:
        raise BadInput(f"{examples} examples; expected at least 1")
    return examples


def usable_seed(seed: int) -> int:
    """A seed that can be used."""
    from retrieval_interp.rng import RngStream

    RngStream.EVALUATION.generator(seed)
    return seed


def usable_threshold(threshold: float) -> float:
    """A threshold that can be used."""
    from circuits.losses.loss import check_threshold

    check_threshold(threshold)
    return threshold


Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="A model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[Path | None, typer.Option("--circuit", help="Circuit YAML (default: the one in MODEL_DIR).")]
Examples = Annotated[int, typer.Option(callback=usable_number, help="Fresh examples to measure on.")]
AtOnce = Annotated[
    int, typer.Option(max=2**14, callback=usable_at_once, help="Fresh examples to measure on, all of them at once.")
]
Seed = Annotated[int, typer.Option(callback=usable_seed, help="Seed of the examples.")]
Threshold = Annotated[
    float, typer.Option(callback=usable_threshold, help="A loss below it counts as low; the paper takes 0.05.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]


class Interrupted(Exception):
    """Stopped by the user; the message says what is left."""

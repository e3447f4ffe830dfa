"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput

MOST_SEEDS = 1000  # of models trained for a comparison


def usable_number(examples: int) -> int:
    """Check a number of examples."""
    from circuits.losses.sample import check_number

    check_number(examples)
    return examples


def usable_at_once(examples: int) -> int:
    """Check a number of examples that are processed in one batch."""
    if examples < 1:
        raise BadInput(f"{examples} examples; expected at least 1")
    return examples


def usable_seed(seed: int) -> int:
    """Check a seed."""
    from retrieval_interp.rng import RngStream

    RngStream.EVALUATION.generator(seed)
    return seed


def usable_threshold(threshold: float) -> float:
    """Check a threshold."""
    from circuits.losses.loss import check_threshold

    check_threshold(threshold)
    return threshold


Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="Model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[Path | None, typer.Option("--circuit", help="Circuit YAML (default: the one in MODEL_DIR).")]
Examples = Annotated[int, typer.Option(callback=usable_number, help="Number of fresh examples.")]
AtOnce = Annotated[
    int, typer.Option(max=2**14, callback=usable_at_once, help="Number of fresh examples, processed in one batch.")
]
Seed = Annotated[int, typer.Option(callback=usable_seed, help="Seed of the examples.")]
Threshold = Annotated[
    float,
    typer.Option(callback=usable_threshold, help="Threshold below which a loss counts as low; the paper uses 0.05."),
]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON document on standard output.")]


class Interrupted(Exception):
    """The user stopped the command; the message says what was kept."""

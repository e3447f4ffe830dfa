"""Arguments and options shared by several commands."""

from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import real


def usable_number(examples: int) -> int:
    """Check a number of examples."""
    from circuits.given import number_of_examples

    return number_of_examples(examples)


def usable_seed(seed: int) -> int:
    """Check a seed."""
    from retrieval_interp.rng import RngStream

    RngStream.EVALUATION.generator(seed)
    return seed


def usable_threshold(threshold: float | None) -> float | None:
    """Check a threshold."""
    return threshold if threshold is None else real("the threshold", threshold, above=0.0)


Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="Model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[Path | None, typer.Option("--circuit", help="Circuit YAML (default: the one in MODEL_DIR).")]
Examples = Annotated[int, typer.Option(callback=usable_number, help="Number of fresh examples.")]
AtOnce = Annotated[int, typer.Option(min=1, max=2**14, help="Number of fresh examples, processed in one batch.")]
Seed = Annotated[int, typer.Option(callback=usable_seed, help="Seed of the examples.")]
Threshold = Annotated[
    float,
    typer.Option(
        callback=usable_threshold,
        help="How far a loss may exceed the model's own and count as low, as a share of the loss that the heads save; "
        "with --protocol paper, the loss itself.",
    ),
]
LanguageTaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        help="Language task: induction, ioi, greater_than or docstring. MODEL_DIR may then be any language model, by a "
        "name such as gpt2 or a folder.",
    ),
]
MetricName = Annotated[
    str | None,
    typer.Option("--metric", help="Metric of the language task: logit_difference (default), probability or kl."),
]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON document on standard output.")]


class Interrupted(Exception):
    """The user stopped the command; the message says what was kept."""

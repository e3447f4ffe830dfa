"""Arguments and options shared by several commands."""

import functools
import inspect
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from circuits.errors import BadInput, real


def usable_number(examples: int | None) -> int | None:
    """Check a number of examples."""
    from circuits.given import number_of_examples

    return examples if examples is None else number_of_examples(examples)


def usable_seed(seed: int) -> int:
    """Check a seed."""
    from retrieval_interp.rng import RngStream

    RngStream.EVALUATION.generator(seed)
    return seed


def usable_threshold(threshold: float | None) -> float | None:
    """Check a threshold before the work: all of them are below 1."""
    if threshold is not None and real("the threshold", threshold, above=0.0) >= 1:
        raise BadInput(f"the threshold is {threshold:g}; expected a number below 1")
    return threshold


Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="Model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[
    Path | None, typer.Option("--circuit", help="Circuit YAML, or JSON of EAP-IG (default: MODEL_DIR's).")
]
HOW_MANY = "Number of fresh examples (default: 1,024; for a model of more than 64 heads 512)."
Examples = Annotated[int | None, typer.Option(callback=usable_number, help=HOW_MANY)]
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
    typer.Option(
        "--metric", help="Metric of the language task: kl, logit_difference or probability (default: the task's)."
    ),
]
Bos = Annotated[
    str,
    typer.Option(
        help="Before every prompt of a language task: default (as the model's own tokenizer does), none, TOKEN."
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", help="Print the tables of losses and paths, too.")]
Json = Annotated[bool, typer.Option("--json", help="Print only one JSON document on standard output.")]


Command = TypeVar("Command", bound=Callable[..., Any])


class Precision(StrEnum):
    """The precision of weights and activations."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


MACHINE = {
    "device": Annotated[str | None, typer.Option(help="Device: cpu (default), cuda or mps.")],
    "dtype": Annotated[Precision | None, typer.Option(metavar="<str>", help="float32 (default), bfloat16 or float16.")],
    "batch_size": Annotated[int | None, typer.Option(min=1, help="Most sequences at once (default: by memory).")],
    "threads": Annotated[int | None, typer.Option(min=1, max=1024, help="Threads of the processor (default: all).")],
}


def runs_model(command: Command) -> Command:
    """Add to a command the options of how its models run (``on_machine``)."""

    @functools.wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        from retrieval_interp.models.machine import on_machine

        machine = {name: given.pop(name, None) for name in MACHINE}
        with on_machine(**machine):
            return command(*args, **given)

    signature = inspect.signature(command)
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in MACHINE.items()
    ]
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), *more])
    run.__annotations__ = {**command.__annotations__, **MACHINE}
    return run  # type: ignore[return-value]


class Interrupted(Exception):
    """The user stopped the command; the message says what was kept."""

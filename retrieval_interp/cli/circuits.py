"""The commands that validate, discover and reproduce circuits."""

import json
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import (
    CircuitFile,
    Examples,
    Json,
    LanguageTaskName,
    MetricName,
    Model,
    TaskThreshold,
    usable_number,
    usable_seed,
)
from retrieval_interp.cli.terminal import print_chance, print_discovery, print_report, printable, progress_bar

if TYPE_CHECKING:
    from collections.abc import Callable

    from circuits.checks.statements import Protocol
    from circuits.circuit import Circuit
    from circuits.model.transformer import Transformer
    from circuits.null_models.chance import ChanceReport
    from circuits.task import Task
    from circuits.validation.report_files import Further
    from circuits.validation.validation_report import ValidationReport

app = typer.Typer()
MOST_EXAMPLES = 1024  # for path patching (an eighth of them) and self-consistency (first)


class ProtocolChoice(StrEnum):
    """The checks that decide whether a circuit holds."""

    extended = "extended"
    paper = "paper"


@app.command()
def demo() -> None:
    """Validate the circuit of transformer_a, and write the report to reports/transformer_a."""
    validate("transformer_a", out=Path("reports/transformer_a"))


@app.command()
def validate(
    model_dir: Model,
    circuit: CircuitFile = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")] = None,
    examples: Examples = 1024,
    seed: Annotated[
        int,
        typer.Option(
            callback=usable_seed,
            help="Seed of the examples; by default not those of the reports in data/, which have seed 0.",
        ),
    ] = 1,
    threshold: TaskThreshold = None,
    language_task: LanguageTaskName = None,
    metric: MetricName = None,
    protocol: Annotated[
        ProtocolChoice, typer.Option(help="Checks that decide: all of them, or only Appendix E of the paper.")
    ] = ProtocolChoice.extended,
    as_json: Json = False,
) -> None:
    """Test a circuit by Appendix E, faithfulness, completeness and minimality.

    Exits with 0 if the circuit holds, 1 if it fails or is undecided, 2 on bad input.
    """
    import circuits
    from circuits.checks.statements import REPORT_FILES
    from circuits.utils.files import check_writable
    from retrieval_interp.models import library

    if language_task is None:
        folder = library.find(model_dir)
        own = library.own_task(folder)  # raises first if this is not a model directory
        hypothesis = library.chosen_circuit(folder, circuit)
        hypothesis.check(own.roles, *library.own_size(folder))  # before the slow loading of the model
    elif circuit is None:
        raise BadInput("--task needs a circuit; name one with --circuit")
    else:
        hypothesis = circuits.load_circuit(circuit)
    for path in (out / name for name in REPORT_FILES if out):
        check_writable(path)
    model, task = opened(model_dir, language_task, metric)
    threshold = threshold or default_threshold(language_task)
    from circuits.validation.report_files import Further, to_json

    show = None if as_json else print_report
    report, chance = validated(
        model, task, hypothesis, model_dir, examples, seed, threshold, protocol=protocol.value, show=show
    )
    page = report.save(out, chance) if out is not None else None
    if as_json:
        print(json.dumps(to_json(report, Further(chance)), indent=2))
    else:
        print_chance(chance)
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def discover(
    model_dir: Model,
    out: Annotated[Path, typer.Option(help="Circuit YAML to write.")] = Path("circuit.yaml"),
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")] = None,
    examples: Annotated[
        int,
        typer.Option(
            min=2,
            callback=usable_number,
            help="Number of fresh examples for discovery, and for validation; validation takes up to 16 times as many "
            "while step 5 or 6 is undecided.",
        ),
    ] = 1024,
    seed: Annotated[
        int,
        typer.Option(callback=usable_seed, help="Seed of the examples; discovery and validation use different ones."),
    ] = 0,
    threshold: TaskThreshold = None,
    language_task: LanguageTaskName = None,
    metric: MetricName = None,
    as_json: Json = False,
) -> None:
    """Find the circuit of a transformer, and validate it on fresh examples, as validate does.

    Exits with 0 if a circuit was found and holds on the fresh examples, 1 if not, 2 on bad input.
    """
    import circuits
    from circuits.checks.statements import REPORT_FILES
    from circuits.utils.files import check_writable

    for path in (out, *(report / name for name in REPORT_FILES if report)):
        check_writable(path)
    model, task = opened(model_dir, language_task, metric)
    threshold = threshold or default_threshold(language_task)
    from circuits.validation.report_files import Further, to_json

    with progress_bar("discovering") as progress:
        found = circuits.discover(model, task, n_examples=examples, threshold=threshold, seed=seed, progress=progress)
    command = f"retrieval-interp discover {model_dir} --seed {seed} --threshold {threshold:g} --examples {examples}"
    command += "".join(f" --{name} {value}" for name, value in facts(task).items())
    circuit = replace(found.circuit, name=Path(model_dir).resolve().name, description=f"Found by: {command}.")
    if found.found:
        circuits.save_circuit(circuit, out)
    if not as_json:
        print_discovery(found)
        if found.found:
            typer.echo(f"The circuit is in {out}. It is now validated on fresh examples.")
        else:
            typer.echo(f"No circuit was found: the loss of the best candidate is {found.combined}.")
            typer.echo(f"Nothing was written to {out}{'; an older file is there' if out.exists() else ''}.")
    show = None if as_json else print_report
    of = (model_dir, examples, seed, threshold)
    tested, chance = validated(model, task, circuit, *of, 16 * examples, show=show)
    further = Further(chance, found)
    if found.found and any(path.joins_roles for path in circuit.paths):
        further = taken_apart(further, model, task, circuit, tested.n_examples, seed, threshold)
    page = tested.save(report, **vars(further)) if report else None
    if as_json:
        print(json.dumps(to_json(tested, further), indent=2))
    else:
        print_chance(chance)
        for one in (further.composition, further.self_consistency):
            for sentence in one.sentences() if one else ():
                typer.echo(sentence)
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if found.found and tested.passed else 1)


@app.command()
def reproduce(
    report: Annotated[Path, typer.Argument(help="A report.json, or the folder that contains it.")],
    model_dir: Annotated[
        str | None, typer.Option("--model", help="The model of the report (default: the one that the report names).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Repeat a report's measurements with the same weights, circuit and examples.

    Exits with 0 if every number agrees within the tolerances, 1 if not, 2 on bad input, such as different weights.
    """
    from retrieval_interp.models import provenance
    from retrieval_interp.models.hub import PREFIX
    from retrieval_interp.models.library import is_local
    from retrieval_interp.models.model_dir import REPORT
    from retrieval_interp.reproduction.reproduce import Settings, circuit_of, differences
    from retrieval_interp.reproduction.stored_report import read_report

    path = report / REPORT if report.is_dir() else report
    stored = read_report(path)
    settings, hypothesis = Settings.of(stored, path), circuit_of(stored, path)
    asked = [stored["metadata"].get(key) for key in ("task", "metric")]
    for name in asked:
        if not isinstance(name, str | None):
            raise BadInput(f"{path}: its task or metric is {name!r}; expected a name")
    far = settings.model.startswith(PREFIX) or (asked[0] is not None and not is_local(settings.model))
    if model_dir is None and far:  # a stranger's report must not start a download
        raise BadInput(f"{path}: its model is not on this machine; name it with --model {settings.model}")
    model, task = opened(model_dir or settings.model, *asked)
    from circuits.validation.report_files import Further, to_json

    now = {**provenance.metadata(settings.model, model), **facts(task)}
    if now["weights_sha256"] != settings.weights_sha256:
        raise BadInput(f"{model_dir or settings.model}: its weights differ from the weights of {path}")
    of = (settings.model, settings.examples, settings.seed, settings.threshold)
    again, chance = validated(model, task, hypothesis, *of, protocol=settings.protocol)
    others = {key: value for key, value in now.items() if stored["metadata"].get(key) != value}
    further = Further(chance)
    if "self_consistency" in stored:
        further = taken_apart(further, model, task, hypothesis, *of[1:])
    document = json.loads(json.dumps(to_json(again, further)))
    found = [*differences(stored, document)]
    if as_json:
        document = {"holds": not found, "now": now, "differences": [asdict(one) for one in found]}
        print(json.dumps(document, indent=2))
    else:
        for key, value in others.items():
            typer.echo(f"{key} was {stored['metadata'].get(key, 'not recorded')!r}, is {value!r}")
        for difference in found:
            typer.echo(printable(str(difference)))
        if "discovery" in stored:
            typer.echo("The discovery was not repeated.")
        differ = "1 value differs" if len(found) == 1 else f"{len(found)} values differ"
        outcome = (
            f"is not reproduced: {differ}" if found else "is reproduced: every number agrees within the tolerances"
        )
        typer.echo(f"{path} {outcome}.")
    raise typer.Exit(1 if found else 0)


def opened(name: str, language_task: str | None, metric: str | None) -> "tuple[Transformer, Task]":
    """Return a model with its own task, or with a language task by name."""
    from retrieval_interp.models import library

    if language_task is None:
        if metric is not None:
            raise BadInput("--metric belongs to a language task; name one with --task")
        own = library.load(name)
        return own.model, own.task
    from retrieval_interp.models.language import on_task

    return on_task(name, language_task, metric or "logit_difference")


def default_threshold(language_task: str | None) -> float:
    """Return the threshold of a model's own task, or of a language task."""
    from retrieval_interp.language_tasks.metric import THRESHOLD

    return 0.05 if language_task is None else THRESHOLD


def facts(task: "Task") -> dict[str, str]:
    """Return the names of a language task and its metric, for reports; nothing for a model's own task."""
    from retrieval_interp.language_tasks.metric import MetricTask

    return {"task": task.task.name, "metric": task.metric.value} if isinstance(task, MetricTask) else {}


def taken_apart(
    further: "Further",
    model: "Transformer",
    task: "Task",
    circuit: "Circuit",
    examples: int,
    seed: int,
    threshold: float,
) -> "Further":
    """Add how the heads of a circuit find their place, and whether they find it without the model's other heads.

    ``examples`` is the number that the validation took; path patching takes fewer. It needs a model whose
    heads and MLPs add to the residual stream, and is left out for others.
    """
    import circuits

    n, composition = min(examples, MOST_EXAMPLES), None
    try:
        with progress_bar("path patching") as progress:
            composition = circuits.path_patching(
                model, task, circuit, n_examples=max(2, n // 8), seed=seed, progress=progress
            )
    except BadInput as error:
        typer.echo(f"Path patching was left out: {error}", err=True)
    with progress_bar("self-consistency") as progress:
        consistent = circuits.self_consistency(
            model,
            task,
            circuit,
            n_examples=n,
            seed=seed,
            threshold=threshold,
            max_examples=4 * MOST_EXAMPLES,
            progress=progress,
        )
    return replace(further, composition=composition, self_consistency=consistent)


def validated(
    model: "Transformer",
    task: "Task",
    circuit: "Circuit",
    name: str,
    examples: int,
    seed: int,
    threshold: float,
    max_examples: int = 0,
    *,
    protocol: "Protocol" = "extended",
    show: "Callable[[ValidationReport], None] | None" = None,
) -> "tuple[ValidationReport, ChanceReport]":
    """Validate a circuit, then compare it with chance on as many examples as the validation used.

    ``show`` is called with the validation report before the comparison with chance, which is slow.
    """
    import circuits
    from retrieval_interp.models.provenance import metadata

    with progress_bar("validating") as progress:
        report = circuits.validate(
            model,
            task,
            circuit,
            n_examples=examples,
            seed=seed,
            threshold=threshold,
            max_examples=max_examples,
            protocol=protocol,
            metadata={**metadata(name, model), **facts(task)},
            progress=progress,
        )
    if show is not None:
        show(report)
    with progress_bar("comparing with chance") as progress:
        chance = circuits.against_chance(
            model, task, circuit, n_examples=report.n_examples, seed=seed, threshold=threshold, progress=progress
        )
    return report, chance

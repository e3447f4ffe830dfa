"""Commands on a trained model and its circuit."""

import json
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import (
    CircuitFile,
    Examples,
    Interrupted,
    Json,
    Model,
    Threshold,
    usable_number,
    usable_seed,
)
from retrieval_interp.cli.terminal import announce, print_chance, print_discovery, print_report, printable, progress_bar

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

    from circuits.circuit import Circuit
    from circuits.measured import Measured
    from circuits.statements import Protocol
    from circuits.statistics import Statistics
    from circuits.validation_report import ValidationReport
    from retrieval_interp.any_task import Task

app = typer.Typer()


class ProtocolChoice(StrEnum):
    """What decides whether a circuit holds."""

    extended = "extended"
    paper = "paper"


UNFINISHED = "unfinished"  # in a report's folder: what a validation has measured, until it is done


def nothing(report: "ValidationReport") -> None:
    """Show nothing."""


@app.command()
def demo() -> None:
    """Validate the trained 12-layer transformer that comes with the toolkit, and write its report."""
    validate("transformer_a", out=Path("reports/transformer_a"))


@app.command()
def validate(
    model_dir: Model,
    circuit: CircuitFile = None,
    out: Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")] = None,
    examples: Examples = 1024,
    seed: Annotated[int, typer.Option(callback=usable_seed, help="Seed of the examples; discover draws others.")] = 1,
    threshold: Threshold = 0.05,
    protocol: Annotated[
        ProtocolChoice, typer.Option(help="What decides: every check, or the paper's Appendix E to the letter.")
    ] = ProtocolChoice.extended,
    as_json: Json = False,
) -> None:
    """Is this the circuit, all of it, and nothing but it? Appendix E, faithfulness, completeness, minimality.

    With --out it can be interrupted: the same command goes on. Exits with 0 if the circuit holds, 1 if it fails or is
    undecided, 2 on bad input.
    """
    import circuits
    from circuits.files import check_writable
    from circuits.statements import REPORT_FILES
    from retrieval_interp import library

    folder = library.find(model_dir)
    task = library.own_task(folder)  # refuses what is no model directory before its circuit is looked for
    hypothesis = library.own_circuit(folder) if circuit is None else circuits.load_circuit(circuit)
    if hypothesis is None:
        raise BadInput(f"{model_dir}: holds no circuit.yaml; name one with --circuit")
    hypothesis.check_names(task.roles, *library.own_size(folder))  # before the model is loaded, which takes longer
    if out is not None:
        for name in REPORT_FILES:
            check_writable(out / name)
    model, task, _ = library.load(folder)
    from circuits.measured import Measured
    from circuits.report import to_json, write_report

    measured = Measured(out / UNFINISHED if out else None)
    if measured.begun:
        typer.echo(f"What was measured before is taken from {measured.folder}.", err=True)
    asked = (model, task, hypothesis, model_dir, examples, seed, threshold, examples)
    try:
        report, chance = judged(*asked, protocol.value, measured, shown=nothing if as_json else print_report)
    except KeyboardInterrupt:
        if not measured.begun:
            raise
        raise Interrupted(f"interrupted; what was measured is in {measured.folder}, the same command goes on") from None
    page = write_report(report, model, task, out, chance) if out is not None else None
    measured.forget()
    if as_json:
        print(json.dumps(to_json(report, chance), indent=2))
    else:
        print_chance(chance)
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def discover(
    model_dir: Model,
    out: Annotated[Path, typer.Option(help="The circuit YAML to write.")] = Path("circuit.yaml"),
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")] = None,
    examples: Annotated[
        int,
        typer.Option(min=2, callback=usable_number, help="Fresh examples to judge on; more where they cannot decide."),
    ] = 1024,
    seed: Annotated[
        int, typer.Option(callback=usable_seed, help="Seed of the examples; choosing and judging draw different ones.")
    ] = 0,
    threshold: Threshold = 0.05,
    as_json: Json = False,
) -> None:
    """Find the circuit of a transformer, and judge it on fresh examples (Appendix E, all steps).

    Exits with 0 if a circuit was found and holds on the fresh examples, 1 if not, 2 on bad input.
    """
    import circuits
    from circuits.files import check_writable
    from circuits.statements import REPORT_FILES
    from retrieval_interp import library

    folder = library.find(model_dir)
    for path in (out, *(report / name for name in REPORT_FILES if report)):
        check_writable(path)
    model, task, _ = library.load(folder)
    from circuits.permuted import null_loss
    from circuits.report import to_json, write_report

    with progress_bar("discovering") as progress:
        found = circuits.discover(model, task, n_examples=examples, threshold=threshold, seed=seed, progress=progress)
    command = f"retrieval-interp discover {model_dir} --seed {seed} --threshold {threshold:g} --examples {examples}"
    circuit = replace(found.circuit, name=Path(model_dir).resolve().name, description=f"Found by: {command}.")
    if found.found:
        circuits.save_circuit(circuit, out)
    if not as_json:
        print_discovery(found)
        if found.found:
            typer.echo(f"The circuit is in {out}; now it is judged on fresh examples.")
        else:
            typer.echo(f"No circuit was found: the best one's loss is {found.combined}.")
            typer.echo(f"Nothing was written to {out}{', which is an older file' if out.exists() else ''}.")
    with progress_bar("role names permuted") as progress:
        found = replace(found, permuted=null_loss(model, task, found, n_examples=examples, progress=progress))
    asked = (model, task, circuit, model_dir, examples, seed, threshold, 16 * examples)
    judgement, chance = judged(*asked, shown=nothing if as_json else print_report)
    page = write_report(judgement, model, task, report, chance, found) if report else None
    if as_json:
        print(json.dumps(to_json(judgement, chance, found), indent=2))
    else:
        print_chance(chance)
        typer.echo(f"The same discovery with role names permuted in each example comes to {found.permuted}.")
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if found.found and judgement.passed else 1)


@app.command()
def verify(
    report: Annotated[Path, typer.Argument(help="report.json, or the folder that holds it.")],
    model_dir: Annotated[
        str | None, typer.Option("--model", help="Where its model lies now (default: where the report says).")
    ] = None,
    as_json: Json = False,
) -> None:
    """Is a report true? Measures all of it again: same weights, same circuit, same examples.

    Exits with 0 if everything was found again, 1 if not, 2 on bad input, such as other weights.
    """
    from retrieval_interp import library, provenance
    from retrieval_interp.sharing import PREFIX
    from retrieval_interp.stored_report import REPORT, read_report
    from retrieval_interp.verification import Settings, circuit_of, differences

    path = report / REPORT if report.is_dir() else report
    stored = read_report(path)
    said, hypothesis = Settings.of(stored, path), circuit_of(stored, path)
    if model_dir is None and said.model.startswith(PREFIX):  # what a stranger wrote does not send us anywhere
        raise BadInput(f"{path}: is of a model on the Hub; name it with --model {said.model}")
    model, task, _ = library.load(model_dir or said.model)
    from circuits.report import to_json

    now = provenance.about(said.model, model)
    if now["weights_sha256"] != said.weights_sha256:
        raise BadInput(f"{model_dir or said.model}: its weights are not those of {path}")
    asked = (model, task, hypothesis, said.model, said.examples, said.seed, said.threshold, said.examples)
    again, chance = judged(*asked, said.protocol)
    others = {key: value for key, value in now.items() if stored["about"].get(key) != value}
    found = [*differences(stored, json.loads(json.dumps(to_json(again, chance))))]
    if as_json:
        print(json.dumps({"holds": not found, "now": now, "differences": [vars(one) for one in found]}, indent=2))
    else:
        for key, value in others.items():
            typer.echo(f"{key} was {stored['about'].get(key, 'not said')!r}, is {value!r}")
        for difference in found:
            typer.echo(printable(str(difference)))
        if "discovery" in stored:
            typer.echo("How the circuit was found was not searched for again.")
        differ = "1 value differs" if len(found) == 1 else f"{len(found)} values differ"
        outcome = f"does not hold: {differ}" if found else "holds: every number in it was found again"
        typer.echo(f"{path} {outcome}.")
    raise typer.Exit(1 if found else 0)


def judged(
    model: "HookedTransformer",
    task: "Task",
    circuit: "Circuit",
    name: str,
    examples: int,
    seed: int,
    threshold: float,
    most: int,
    protocol: "Protocol" = "extended",
    measured: "Measured | None" = None,
    shown: "Callable[[ValidationReport], None]" = nothing,
) -> "tuple[ValidationReport, Statistics]":
    """A circuit validated, and held against chance, on the same fresh examples; as many as ``validate`` needs.

    ``shown`` is told of the validation before it is held against chance, which takes its time.
    """
    import circuits
    from circuits.measured import Measured
    from retrieval_interp import provenance

    measured = measured or Measured()
    about = provenance.about(name, model)
    with progress_bar("validating") as progress:
        report = circuits.validate(
            model,
            task,
            circuit,
            n_examples=examples,
            seed=seed,
            threshold=threshold,
            most=most,
            protocol=protocol,
            progress=progress,
            about=about,
            measured=measured,
            estimated=announce,
        )
    shown(report)
    with progress_bar("is it chance?") as progress:
        chance = circuits.against_chance(
            model,
            task,
            circuit,
            n_examples=report.n_examples,
            seed=seed,
            threshold=threshold,
            progress=progress,
            measured=measured,
        )
    return report, chance

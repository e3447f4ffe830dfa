"""The commands that validate, discover and reproduce circuits."""

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circuits.errors import BadInput
from circuits.utils.lazy import torch
from retrieval_interp.cli.options import (
    Bos,
    CircuitFile,
    Examples,
    Interrupted,
    Json,
    LanguageTaskName,
    MetricName,
    Model,
    Seed,
    Threshold,
    Verbose,
    runs_model,
)
from retrieval_interp.cli.reports import print_discovery, print_report
from retrieval_interp.cli.terminal import printable

if TYPE_CHECKING:
    from circuits.circuit import Circuit
    from circuits.model.transformer import Transformer
    from circuits.report.report import Report
    from circuits.task import Task

app = typer.Typer()
USUAL, OF_MANY = 1024, 512  # examples by default; of a model with many heads
MOST_EXAMPLES = 1024  # an eighth of them for path patching
UNFINISHED = "unfinished"  # the folder of what is measured, in that of the results, until all is done
DISCOVERY, VALIDATION = 22_000, 7_500  # prompts that run, roughly
REPEATS = 2  # of the validation of a discovered circuit with four times as many examples, while it is undecided
Out = Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")]


class ProtocolChoice(StrEnum):
    """The checks that decide whether a circuit holds."""

    extended = "extended"
    paper = "paper"


Protocols = Annotated[
    ProtocolChoice,
    typer.Option(help="All mechanisms and checks, or those of the paper's Appendix E, with its absolute threshold."),
]


@app.command(epilog="Example: retrieval-interp demo")
@runs_model
def demo() -> None:
    """Validate the circuit of transformer_a on 512 examples, and write the report to reports/transformer_a."""
    validate("transformer_a", out=Path("reports/transformer_a"), examples=512)


@app.command(epilog="Example: retrieval-interp validate transformer_a --out reports/transformer_a")
@runs_model
def validate(
    model_dir: Model,
    circuit: CircuitFile = None,
    out: Out = None,
    examples: Examples = None,
    seed: Seed = 0,
    threshold: Threshold = 0.05,
    language_task: LanguageTaskName = None,
    metric: MetricName = None,
    bos: Bos = "default",
    protocol: Protocols = ProtocolChoice.extended,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Test whether a circuit solves, agrees, and is faithful, complete, carrying and minimal.

    Exits with 0 if the circuit holds, 1 if it fails or is undecided, 2 on bad input.
    """
    import circuits
    from retrieval_interp.models import library

    if language_task is None:
        folder = library.find(model_dir)
        task_of_model = library.own_task(folder)  # raises first if this is not a model directory
        hypothesis = library.chosen_circuit(folder, circuit)
        hypothesis.check(task_of_model.roles, *library.own_size(folder))  # before the slow loading of the model
    elif circuit is None and not library.is_ours(model_dir):
        raise BadInput("--task needs a circuit; name one with --circuit")
    else:
        hypothesis = library.chosen_circuit(model_dir, circuit)
    check_folder(out)
    model, task = opened(model_dir, language_task, metric, bos, hypothesis)
    check_protocol(protocol, model)
    check_fit(model, task, hypothesis)
    if str(circuit).endswith(".json") and (n := model.cfg.n_layers * model.cfg.n_heads) != len(hypothesis.heads):
        raise BadInput(f"{circuit}: its cfg has {len(hypothesis.heads)} heads, the model {n}; expected as many")
    examples, about = examples or usual(model), facts(model_dir, model, task)
    with long_work(out, {**about, "circuit": hypothesis.digest}, model, task, VALIDATION, examples):
        report = circuits.validate(model, task, hypothesis, n_examples=examples, seed=seed, threshold=threshold)
        report = report.by(protocol.value).about(about)
        tell(report, out, as_json, verbose)
    raise typer.Exit(0 if report.decision == "holds" else 1)


@app.command(epilog="Example: retrieval-interp discover transformer_a --out reports/found")
@runs_model
def discover(
    model_dir: Model,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for circuit.yaml, report.json, report.md and report.html (default: reports/MODEL)."),
    ] = None,
    examples: Examples = None,
    seed: Seed = 0,
    threshold: Threshold = 0.05,
    language_task: LanguageTaskName = None,
    metric: MetricName = None,
    bos: Bos = "default",
    protocol: Protocols = ProtocolChoice.extended,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Find the circuit of a transformer, and validate it on fresh examples, as validate does.

    An undecided validation takes up to 16 times as many examples. A circuit whose loss is undecided is saved, too.

    Exits with 0 if a circuit was saved and holds on the fresh examples, 1 if not, 2 on bad input.
    """
    import circuits

    name = "_".join(filter(None, (Path(model_dir).resolve().name, language_task)))
    out = out or Path("reports") / name
    check_folder(out)
    model, task = opened(model_dir, language_task, metric, bos)
    check_protocol(protocol, model)
    chosen: dict[str, Any] = {"threshold": threshold, "seed": seed}
    examples, about = examples or usual(model), facts(model_dir, model, task)
    options = {"seed": seed, "threshold": f"{threshold:g}", "examples": examples}
    options |= {"protocol": protocol.value} if protocol == ProtocolChoice.paper else {}
    options |= {key: about[key] for key in ("task", "metric", "bos") if about.get(key, "default") != "default"}
    options |= {"dtype": about["precision"]} if about["precision"] != "float32" else {}
    command = " ".join(
        [f"retrieval-interp discover {model_dir}", *(f"--{key} {value}" for key, value in options.items())]
    )
    with long_work(out, about, model, task, DISCOVERY + VALIDATION, examples):
        discovery = circuits.discover(model, task, n_examples=examples, **chosen, protocol=protocol.value)
        circuit = replace(discovery.circuit, name=name, description=f"Found by: {command}.")
        if not as_json:
            print_discovery(discovery)
        combined, file = discovery.combined, out / "circuit.yaml"
        found = combined.decision != "above"
        if not found:
            typer.echo(f"No circuit was found: the loss of the best candidate is {combined}.", err=as_json)
        elif not discovery.found:
            typer.echo(f"Undecided whether the loss is low: {combined}.", err=as_json)
        if found:
            circuits.save_circuit(circuit, file)
            typer.echo(f"The circuit is in {file}. It is now validated on fresh examples.", err=as_json)
        elif file.exists():
            typer.echo(f"{file} is older, and not the circuit of this report.", err=as_json)
        report = circuits.validate(model, task, circuit, n_examples=examples, **chosen).by(protocol.value)
        for _ in range(REPEATS):
            if report.more_examples_could_decide and report.paper is not None:  # few heads: it takes seconds
                examples *= 4
                report = circuits.validate(model, task, circuit, n_examples=examples, **chosen).by(protocol.value)
        report = report.model_copy(update={"discovery": discovery})
        if found and report.paper is not None:
            report = taken_apart(report, model, task)
        tell(report.about(about), out, as_json, verbose)
    raise typer.Exit(0 if found and report.decision == "holds" else 1)


def check_fit(model: "Transformer", task: "Task", circuit: "Circuit") -> None:
    """Check before the work, on two examples, that the patterns of a circuit fit; BadInput if they do not."""
    import circuits
    from circuits.mechanisms.mechanism import Idle, Resample

    outputs = [head for head, mechanism in circuit.heads.items() if isinstance(mechanism, Idle | Resample)]
    examples = task.examples(2, 0).to(next(model.parameters()).device)
    circuits.run_ablated(model, circuit.without_heads(outputs), examples)


def check_protocol(protocol: ProtocolChoice, model: "Transformer") -> None:
    """Check before the work that Appendix E to the letter can be run.

    Raises:
        BadInput: the model has many heads, each of which would be taken alone.
    """
    from circuits.settings import current, has_many_heads

    if protocol == ProtocolChoice.paper and has_many_heads(model.cfg):
        most = current().one_by_one
        raise BadInput(f"--protocol paper takes each head alone: not on models of more than {most} heads")


def usual(model: "Transformer") -> int:
    """Return the number of examples where none was asked for."""
    from circuits.settings import has_many_heads

    return OF_MANY if has_many_heads(model.cfg) else USUAL


@contextmanager
def long_work(
    out: Path | None, about: dict[str, Any], model: "Transformer", task: "Task", runs: int, examples: int
) -> Iterator[None]:
    """Say how long work on a language model with many heads takes; keep what is finished in the folder of its results.

    ``runs`` is about how many prompts run through the model with the usual number of examples.
    """
    from circuits.model.transformer import run
    from circuits.settings import has_many_heads
    from circuits.utils.kept import keeping, key_of
    from retrieval_interp.language_tasks.metric import MetricTask

    if not isinstance(task, MetricTask) or not has_many_heads(model.cfg):  # it takes a minute
        yield
        return
    few = task.examples(16, 0).to(next(model.parameters()).device)
    start = time.monotonic()
    with torch.no_grad():
        run(model, few)
    minutes = math.ceil((time.monotonic() - start) / len(few) * runs * (0.2 + 0.8 * examples / OF_MANY) / 60)
    n_heads = model.cfg.n_layers * model.cfg.n_heads
    typer.echo(f"{n_heads} heads, prompts of {few.inputs.shape[1]} tokens: about {minutes} min", err=True)
    if out is None:
        yield
        return
    folder = out / f"{UNFINISHED}_{key_of(few.inputs, about)[:8]}"  # of this model, task and circuit alone
    try:
        with keeping(folder, about):
            yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {folder} keeps what is finished, and the same command continues") from None


@app.command(epilog="Example: retrieval-interp reproduce reports/transformer_a")
@runs_model
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
    path = report / "report.json" if report.is_dir() else report
    if not path.is_file():  # before the slow imports
        raise BadInput(f"{path}: no such file (expected a report of `validate`)")
    import circuits
    from circuits.settings import deciding
    from retrieval_interp.models.hub import PREFIX
    from retrieval_interp.models.library import is_local
    from retrieval_interp.models.machine import chosen as placed_by
    from retrieval_interp.models.machine import on_machine
    from retrieval_interp.reproduction import differences, read_report

    stored = read_report(report)
    name, about = stored.metadata["model"], stored.metadata
    asked = about.get("task"), about.get("metric"), about.get("bos", "default")
    far = name.startswith(PREFIX) or (asked[0] is not None and not is_local(name))
    if model_dir is None and far:  # a stranger's report must not start a download
        raise BadInput(f"{report}: its model is not on this machine; name it with --model {name}")
    with on_machine(dtype=None if "dtype" in placed_by() else about.get("precision")):  # as the report's
        model, task = opened(model_dir or name, *asked)
    now = facts(name, model, task)
    if now["weights_sha256"] != stored.metadata["weights_sha256"]:
        raise BadInput(f"{model_dir or name}: its weights differ from the weights of {report}")
    chosen: dict[str, Any] = {"n_examples": stored.n_examples, "seed": stored.seed, "threshold": stored.threshold}
    with deciding(**stored.settings.model_dump()):
        again = circuits.validate(model, task, stored.circuit, **chosen).by(stored.protocol)
        if stored.composition is not None:
            again = taken_apart(again, model, task)
    different = [*differences(stored, again)]
    if as_json:
        print(
            json.dumps(
                {"holds": not different, "now": now, "differences": [one._asdict() for one in different]},
                indent=2,
                default=str,
            )
        )
    else:
        for key, value in now.items():
            if stored.metadata.get(key) != value:
                typer.echo(f"{key} was {stored.metadata.get(key, 'not recorded')!r}, is {value!r}")
        for one in different:
            typer.echo(printable(str(one)))
        if stored.discovery is not None:
            typer.echo("The discovery was not repeated.")
        outcome = (
            f"not reproduced: values that differ: {len(different)}" if different else "reproduced: every number agrees"
        )
        typer.echo(f"{report} is {outcome}.")
    raise typer.Exit(1 if different else 0)


def opened(
    name: str, language_task: str | None, metric: str | None, bos: str = "default", circuit: "Circuit | None" = None
) -> "tuple[Transformer, Task]":
    """Return a model with its own task, or with a language task by name, which a circuit must fit."""
    from rich.console import Console

    from retrieval_interp.models import library, smollm2

    if language_task is None:
        if metric is not None or bos != "default":
            raise BadInput("--metric and --bos belong to a language task; name one with --task")
        model, task, _ = library.load(name)
        if task is None:
            raise BadInput(smollm2.NO_TASK)
        return model, task
    from retrieval_interp.models.language import on_task

    with Console(stderr=True).status(f"Loading {name}, and measuring it on {language_task}."):  # in a terminal
        return on_task(name, language_task, metric, bos, circuit)


def facts(name: str, model: "Transformer", task: "Task") -> dict[str, str]:
    """Return what a report says of its model, and of a language task and its metric."""
    from retrieval_interp.language_tasks.metric import MetricTask
    from retrieval_interp.models.provenance import metadata

    asked = {}
    if isinstance(task, MetricTask):
        asked = {"task": task.task.name, "metric": task.metric.value, "bos": task.task.bos, "prompt": task.task.shown()}
    return {**metadata(name, model), **asked}


def check_folder(out: Path | None) -> None:
    """Check that the files of a report can be written, before the work."""
    from circuits.results import PAGE, REPORT, SUMMARY
    from circuits.utils.files import check_writable

    for name in (REPORT, SUMMARY, PAGE):
        if out is not None:
            check_writable(out / name)


def taken_apart(report: "Report", model: "Transformer", task: "Task") -> "Report":
    """Add how the heads of a circuit find their place.

    It is left out without paths between roles, and for a model whose heads and MLPs do not add to the residual stream.
    """
    import circuits

    n = max(2, min(report.n_examples, MOST_EXAMPLES) // 8)
    try:
        composition = circuits.path_patching(model, task, report.circuit, n_examples=n, seed=report.seed)
    except BadInput as error:
        typer.echo(f"Left out: {error}", err=True)
        return report
    return report.model_copy(update={"composition": composition})


def tell(report: "Report", out: Path | None, as_json: bool, verbose: bool) -> None:
    """Print a report, write its files, of which the page takes seconds, and say where that is."""
    if as_json:
        print(report.model_dump_json(indent=2), flush=True)
    else:
        print_report(report, verbose)
    if out is not None and (page := report.save(out)) and not as_json:
        typer.echo(f"The report is at {page}")

"""The command line: every command's words; the work is done elsewhere."""

import json
import os
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from circuits.errors import BadInput
from retrieval_interp.terminal import print_report, progress_bar

if TYPE_CHECKING:
    from circuits.circuit import Circuit
    from circuits.statistics import Statistics
    from circuits.validation_report import ValidationReport
    from retrieval_interp.model import VectorTransformer
    from retrieval_interp.task import RetrievalTask

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

# Some versions of typer carry a copy of click; typer's own name leads to the right base class in all of them.
UsageError: Any = typer.BadParameter.__base__

Model = Annotated[
    str, typer.Argument(metavar="MODEL_DIR", help="A model directory, a name such as transformer_a, or hf:owner/name.")
]
CircuitFile = Annotated[Path | None, typer.Option("--circuit", help="Circuit YAML (default: the one in MODEL_DIR).")]
Examples = Annotated[int, typer.Option(help="Fresh examples to measure on.")]
Seed = Annotated[int, typer.Option(help="Seed of the examples.")]
Threshold = Annotated[float, typer.Option(help="A loss below it counts as low; the paper takes 0.05.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else.")]


@app.callback()
def about() -> None:
    """Hold a transformer against a hypothesis about its attention heads."""


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
    seed: Seed = 0,
    threshold: Threshold = 0.05,
    as_json: Json = False,
) -> None:
    """Is this the circuit, all of it, and nothing but it? Appendix E, steps 3, 5 and 6.

    Exits with 0 if the circuit holds, 1 if it does not, 2 on bad input.
    """
    import circuits
    from circuits.files import check_writable
    from circuits.report import REPORT_FILES, to_json, write_report
    from retrieval_interp import library

    model, task, own = library.load(model_dir)
    hypothesis = own if circuit is None else circuits.load_circuit(circuit)
    if hypothesis is None:
        raise BadInput(f"{model_dir}: holds no circuit.yaml; name one with --circuit")
    if out is not None:
        for name in REPORT_FILES:
            check_writable(out / name)
    report, chance = judged(model, task, hypothesis, model_dir, examples, seed, threshold, most=examples)
    page = write_report(report, model, task, out, chance) if out is not None else None
    if as_json:
        print(json.dumps(to_json(report, chance), indent=2))
    else:
        print_report(report, chance)
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def discover(
    model_dir: Model,
    out: Annotated[Path, typer.Option(help="The circuit YAML to write.")] = Path("circuit.yaml"),
    report: Annotated[Path | None, typer.Option(help="Folder for report.json, report.md and report.html.")] = None,
    examples: Annotated[
        int, typer.Option(min=2, help="Fresh examples to judge on; more where they cannot decide.")
    ] = 1024,
    seed: Annotated[int, typer.Option(help="Seed of the examples to select on; seed + 1 judges.")] = 0,
    threshold: Threshold = 0.05,
    as_json: Json = False,
) -> None:
    """Find the circuit of a transformer, and judge it on fresh examples (Appendix E, all steps).

    Exits with 0 if a circuit was found and holds on the fresh examples, 1 if not, 2 on bad input.
    """
    import circuits
    from circuits.files import check_writable
    from circuits.report import REPORT_FILES, to_json, write_report
    from retrieval_interp import library

    model, task, _ = library.load(model_dir)
    for path in (out, *(report / name for name in REPORT_FILES if report)):
        check_writable(path)
    for each in (seed, seed + 1):
        task.examples(1, each)  # refuses what cannot be a seed before the search, not after it
    with progress_bar("discovering") as progress:
        found = circuits.discover(model, task, threshold=threshold, seed=seed, progress=progress)
    command = f"retrieval-interp discover {model_dir} --seed {seed} --threshold {threshold:g}"
    circuit = replace(found.circuit, name=Path(model_dir).name, description=f"Found by: {command}.")
    judgement, chance = judged(model, task, circuit, model_dir, examples, seed + 1, threshold, most=16 * examples)
    if found.found:
        circuits.save_circuit(circuit, out)
    page = write_report(judgement, model, task, report, chance, found) if report else None
    if as_json:
        print(json.dumps(to_json(judgement, chance, found), indent=2))
    else:
        print_report(judgement, chance)
        typer.echo(f"{len(found.trials)} candidates were tried on {found.n_evaluations} sequences.")
        for other in found.others():
            typer.echo(f"As many paths, and below the threshold too: {other}")
        if found.found:
            typer.echo(f"The circuit is in {out}")
        else:
            typer.echo(f"No circuit was found: where it was selected, the best one's loss is {found.judgement}.")
        if page is not None:
            typer.echo(f"The report is at {page}")
    raise typer.Exit(0 if found.found and judgement.passed else 1)


@app.command()
def view(
    model_dir: Model,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("reports/attention.html"),
    examples: Annotated[int, typer.Option(min=1, max=50, help="How many examples to show.")] = 3,
    seed: Seed = 0,
) -> None:
    """Write circuitsvis attention viewers of all heads into one HTML file that works offline."""
    from circuits.files import write_atomically
    from circuits.page import render_page
    from circuits.viewer import viewer_elements
    from retrieval_interp import library

    model, task, _ = library.load(model_dir)
    viewers = viewer_elements(model, task.examples(examples, seed))
    write_atomically(out, render_page("viewers.html.jinja", title=Path(model_dir).name, viewers=viewers))
    typer.echo(f"The viewers are at {out}")


@app.command()
def emergence(
    run_dir: Annotated[str, typer.Argument(help="Folder of a run, or a name such as transformer_d.")],
    circuit: Annotated[Path | None, typer.Option(help="Circuit YAML (default: the one in RUN_DIR).")] = None,
    out: Annotated[Path, typer.Option(help="Folder for emergence.html and the tables.")] = Path("reports/emergence"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """When did each attention path of a circuit emerge in training? (Section 9, Appendix D.)"""
    import circuits
    from circuits.files import check_writable
    from retrieval_interp import emergence as room
    from retrieval_interp import library
    from retrieval_interp.checkpoints import CIRCUIT
    from retrieval_interp.emergence_page import FILES, write_emergence
    from retrieval_interp.observations import observations

    run = library.find(run_dir)
    if circuit is None and not (run / CIRCUIT).exists():
        raise BadInput(f"{run_dir}: holds no {CIRCUIT}; name one with --circuit")
    hypothesis = circuits.load_circuit(circuit or run / CIRCUIT)
    for name in FILES:
        check_writable(out / name)
    with progress_bar("following the paths") as progress:
        followed = room.emergence(run, hypothesis, seed=seed, progress=progress)
    command = f"retrieval-interp emergence {run_dir} --seed {seed}"
    chosen = f"{command} --circuit {circuit}" if circuit else command
    page = write_emergence(followed, Path(run_dir).name, out, command, chosen)
    said = observations(followed)
    if as_json:
        table = followed.table()
        emerged = json.loads(table.reset_index().to_json(orient="records"))
        document = {"source": followed.source, "paths": emerged, "observations": [asdict(one) for one in said]}
        print(json.dumps(document, indent=2))
        return
    typer.echo(f"Attention from {followed.source}")
    for path, step in followed.emerged.items():
        typer.echo(f"{path:40} " + (f"step {step:.0f}" if step is not None else "never"))
    for one in said:
        typer.echo(
            f"{one.name:>4} { ({True: 'holds', False: 'differs', None: 'cannot be said'}[one.holds]) }: {one.sentence}"
        )
    typer.echo(f"The page is at {page}")


@app.command()
def train(
    preset: Annotated[str | None, typer.Argument(help="Name of a preset; `presets` lists them.")] = None,
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("runs/latest"),
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data (default: the preset's).")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Train longer or shorter than the preset says.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, bit for bit.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    compile: Annotated[bool, typer.Option(help="Use torch.compile where it works.")] = True,
) -> None:
    """Train a preset, with a log and checkpoints; Ctrl-C saves."""
    from retrieval_interp import training

    if resume:
        if preset is not None or seed is not None or steps is not None:
            raise BadInput("--resume takes preset, seed and steps from the run; leave them out")
    elif preset is None:
        raise BadInput("name a preset; `retrieval-interp presets` lists them")
    else:
        training.choose_device(device)  # refuses one that is not there before a folder is made
        training.start_run(out, preset, seed=seed, steps=steps)
    try:
        training.train(out, device, compile)
    except training.TrainingStopped as stopped:
        raise Interrupted(f"{stopped}. Go on with: retrieval-interp train --resume --out {out}") from None
    except training.TrainingDiverged as diverged:
        typer.echo(str(diverged), err=True)
        raise typer.Exit(1) from None
    typer.echo(f"The trained model is in {out}")


@app.command()
def presets(as_json: Json = False) -> None:
    """List the presets: every model of the paper, and tiny."""
    from rich.console import Console
    from rich.table import Column, Table

    from retrieval_interp.presets import PRESETS

    if as_json:
        print(json.dumps({name: asdict(preset) for name, preset in PRESETS.items()}, indent=2))
        return
    columns = ("layers", "heads", "d_model", "MLP", "D", "targets", "steps", "batch", "seed")
    table = Table(Column("preset", no_wrap=True), *columns)
    for name, p in PRESETS.items():
        shape, targets = p.architecture, "x1 ... xD" if p.task.implicit_curriculum else "xD"
        cells = (shape.n_layers, shape.n_heads, shape.d_model, "yes" if shape.mlp else "no", p.task.n_steps, targets)
        table.add_row(name, *map(str, (*cells, p.recipe.steps, p.recipe.batch, p.seed)))
    Console().print(table)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.")],
    to: Annotated[Path, typer.Argument(help="The model directory to write.")],
    checkpoint: Annotated[list[int] | None, typer.Option(help="A step whose checkpoint to keep; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Make a small model directory of a finished run, in half precision where that leaves the loss as it is."""
    from retrieval_interp.export import export as write_export

    measured = write_export(run, to, checkpoint or ())
    if as_json:
        print(json.dumps(measured, indent=2))
    else:
        loss = measured["loss_float32"]
        parts = ", ".join(f"{name} {value:.4f}" for name, value in loss["parts"].items())
        typer.echo(f"loss {loss['mean']:.5f} ± {loss['standard_error']:.5f} ({parts}), {measured['examples']} examples")
        typer.echo(
            f"in half precision {measured['loss_float16']['mean']:.5f}; written as {measured['precision']} to {to}"
        )


@app.command()
def card(model_dir: Model) -> None:
    """Write the model card of a model directory, README.md: how it was made, its losses, its circuit."""
    from circuits.files import write_atomically
    from retrieval_interp import library
    from retrieval_interp.card import CARD, model_card

    folder = library.find(model_dir)
    write_atomically(folder / CARD, model_card(folder, model_dir))
    typer.echo(f"The card is at {folder / CARD}")


@app.command()
def push(
    model_dir: Model,
    address: Annotated[str, typer.Argument(help="hf:owner/name; made where it is not there yet.")],
) -> None:
    """Share a model directory through the Hugging Face Hub; anyone loads it by that address."""
    from retrieval_interp import library, sharing

    typer.echo(f"Shared at {sharing.push(library.find(model_dir), address)}")


def judged(
    model: "VectorTransformer",
    task: "RetrievalTask",
    circuit: "Circuit",
    name: str,
    examples: int,
    seed: int,
    threshold: float,
    most: int,
) -> "tuple[ValidationReport, Statistics]":
    """A circuit validated, and held against chance, on the same fresh examples.

    Where the combined loss is too near to the threshold to say, four times as many are drawn, up to ``most``.
    """
    import circuits
    from retrieval_interp import provenance

    about = provenance.about(name, model)
    asked: dict[str, Any] = {"n_examples": examples, "seed": seed, "threshold": threshold}
    with progress_bar("validating") as progress:
        report = circuits.validate(model, task, circuit, **asked, progress=progress, about=about)
        while report.combined.near(threshold) and asked["n_examples"] < most:
            asked["n_examples"] = min(4 * asked["n_examples"], most)
            report = circuits.validate(model, task, circuit, **asked, progress=progress, about=about)
    with progress_bar("is it chance?") as progress:
        chance = circuits.against_chance(model, task, circuit, **asked, progress=progress)
    return report, chance


class Interrupted(Exception):
    """Stopped by the user; the message says what is left."""


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; whatever the user can mend is one line on standard error and exit code 2."""
    try:
        code = app(arguments, standalone_mode=False) or 0
        sys.stdout.flush()
        if code == 130:  # what typer makes of Ctrl-C
            raise Interrupted("interrupted")
        sys.exit(code)
    except UsageError as error:
        complain(f"{error.format_message()} (see --help)")
    except BadInput as error:
        complain(str(error))
    except OSError as error:
        # What was printed cannot get out any more; Python would complain about that again when it ends.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        complain(f"{error.filename or 'standard output'} cannot be written ({error.strerror or error})")
    except (Interrupted, typer.Abort, KeyboardInterrupt) as stopped:
        print(str(stopped) or "interrupted", file=sys.stderr)
        sys.exit(130)


def complain(message: str) -> None:
    """One line on standard error, exit code 2."""
    print(f"retrieval-interp: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)

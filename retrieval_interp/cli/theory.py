"""Commands on the theory of information flow."""

import json
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from circuits.errors import BadInput
from retrieval_interp.cli.options import MOST_SEEDS, AtOnce, Json, Model, Seed
from retrieval_interp.cli.terminal import progress_bar, runs_bar

app = typer.Typer()


@app.command()
def depth(
    hops: Annotated[list[int] | None, typer.Argument(help="Hops D, as many as you like (default: 1 to 100).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for depth.csv and the page, depth.html.")] = None,
    as_json: Json = False,
) -> None:
    """How many layers does it take to follow D hops? Exact numbers, beside the paper's bound (section 5)."""
    from circuits.files import check_writable
    from retrieval_interp.cli.terminal import print_depths
    from retrieval_interp.depth import depths

    rows = depths(hops or range(1, 101))
    page = None
    if out is not None:
        from retrieval_interp.depth_page import FILES, write_depth  # brings in plotly, which takes its time

        for name in FILES:
            check_writable(out / name)
        page = write_depth(rows, out, " ".join(["retrieval-interp depth", *map(str, hops or [])]))
    if as_json:
        document = [{**row._asdict(), "bound_paper": round(row.bound_paper, 10)} for row in rows]
        print(json.dumps(document, indent=2, separators=(",", ":")))
        return
    print_depths(rows)
    if page:
        typer.echo(f"The page is at {page}")


@app.command()
def staircase(
    hops: Annotated[list[int] | None, typer.Argument(help="Hops D (default: 1 and 2).")] = None,
    seeds: Annotated[int, typer.Option(min=1, max=MOST_SEEDS, help="Runs of every model.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Training steps of each, at most.")] = 6000,
    out: Annotated[Path, typer.Option(help="Folder for the runs, staircase.csv and the page; goes on there.")] = Path(
        "reports/staircase"
    ),
    as_json: Json = False,
) -> None:
    """Is depth enough, is it needed? Trains small models with too few layers, and with enough."""
    asked = list(dict.fromkeys(hops or (1, 2)))
    if not all(1 <= n <= 7 for n in asked):
        raise BadInput(f"{', '.join(map(str, asked))} hops; expected whole numbers from 1 to 7")
    from circuits.files import check_writable
    from retrieval_interp import staircase as room
    from retrieval_interp.provenance import versions
    from retrieval_interp.staircase_page import FILES, write_staircase

    for name in FILES:
        check_writable(out / name)
    with runs_bar() as progress:
        runs = room.experiment(asked, seeds, steps, out, progress)
    command = f"retrieval-interp staircase {' '.join(map(str, asked))} --seeds {seeds} --steps {steps}"
    page = write_staircase(runs, out, command)
    if as_json:
        rows = json.loads(room.table(runs).to_json(orient="records"))
        print(json.dumps({"command": command, **versions(), "rows": rows}, indent=2))
        return
    for sentence in room.sentences(runs):
        typer.echo(sentence)
    typer.echo(f"The page is at {page}")


@app.command()
def facts(
    path: Annotated[Path, typer.Argument(help="A question with its facts, as YAML (see data/facts/).")],
    as_json: Json = False,
) -> None:
    """How many layers does it take to answer from facts that depend on one another (section 3.1)?

    Exits with 0 if the answer can be known with the causal mask, 1 if not.
    """
    from circuits.facts import load_facts
    from circuits.flow import spread

    told = load_facts(path)
    layout = told.layout
    known = [sorted(state[told.reader] - layout.places) for state in spread(layout, causal=True)]
    causal, full = told.layers(causal=True), told.layers(causal=False)
    if as_json:
        document = {"asked": told.asked, "layers_full": full, "layers_causal": causal, "known_after": known}
        print(json.dumps(document, indent=2))
        raise typer.Exit(0 if causal is not None else 1)
    typer.echo(f"{told.asked!r} takes {_layers(causal)} with the causal mask, {_layers(full)} without a mask.")
    for layer, tokens in enumerate(known):
        typer.echo(f"after {_layers(layer)} the end of the query knows: {', '.join(tokens)}")
    raise typer.Exit(0 if causal is not None else 1)


def _layers(number: int | None) -> str:
    return "more layers than there are" if number is None else "1 layer" if number == 1 else f"{number} layers"


@app.command()
def arrival(
    model_dir: Model,
    out: Annotated[Path | None, typer.Option(help="Folder for arrival.csv and the page, arrival.html.")] = None,
    examples: AtOnce = 1024,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """With which layer can each symbol be read where it is asked, and which does information flow predict?"""
    from circuits.files import check_writable
    from circuits.soundness import soundness
    from retrieval_interp import library
    from retrieval_interp.arrival import arrival as measured
    from retrieval_interp.arrival import possible
    from retrieval_interp.arrival_page import FILES, write_arrival
    from retrieval_interp.provenance import about
    from retrieval_interp.vectors import VectorTask

    if examples < 2:
        raise BadInput(f"{examples} examples; expected at least 2, to fit a regression")
    folder = library.find(model_dir)
    if not isinstance(task := library.own_task(folder), VectorTask):
        raise BadInput(f"{model_dir}: reads words; the symbols that are read here are vectors")
    if out is not None:
        for name in FILES:
            check_writable(out / name)
    model, _, circuit = library.load(folder)
    with progress_bar("reading") as progress:
        read = measured(model, task, n_examples=examples, seed=seed, progress=progress)
    flow = soundness(circuit, task) if circuit else None
    command = f"retrieval-interp arrival {model_dir} --examples {examples} --seed {seed}"
    earliest, name = possible(task), Path(model_dir).resolve().name
    page = write_arrival(read, flow, earliest, name, out, command) if out is not None else None
    predicted = {"possible": earliest, "flow": flow.arrivals if flow else None}
    layers = {**predicted, "own": read.layers("own"), "ridge": read.layers("ridge")}
    if as_json:
        rows = json.loads(read.table().to_json(orient="records"))
        print(json.dumps({"command": command, **about(model_dir, model), "layers": layers, "errors": rows}, indent=2))
        return
    for part in task.parts:
        said = ", ".join(f"{name} {own[part]}" for name, own in layers.items() if own)
        typer.echo(f"{part} arrives with layer: {said}")
    if page:
        typer.echo(f"The page is at {page}")


@app.command()
def write(
    model_dir: Model,
    examples: AtOnce = 4096,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Let a model write its symbols and read them again: how far does it come?"""
    from retrieval_interp import library
    from retrieval_interp.provenance import about
    from retrieval_interp.writing_task import WritingTask, written_losses

    folder = library.find(model_dir)
    if not isinstance(task := library.own_task(folder), WritingTask):
        raise BadInput(f"{model_dir}: was trained to answer in one pass; expected a model that writes (preset writing)")
    model = library.load(folder).model
    with progress_bar("writing") as progress:
        shown, own = written_losses(model, task, task.examples(examples, seed), progress)
    if as_json:
        command = f"retrieval-interp write {model_dir} --examples {examples} --seed {seed}"
        losses = {"reading_what_should_be_written": shown.to_json(), "reading_its_own": own.to_json()}
        print(json.dumps({"command": command, **about(model_dir, model), **losses}, indent=2))
        return
    for part in task.parts:
        typer.echo(
            f"{part}: {own.parts[part]:.4f}, and {shown.parts[part]:.4f} where it reads what it should have written"
        )


@app.command()
def where(
    model_dir: Model,
    examples: AtOnce = 1024,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Does each head attend to roles, wherever they stand, or to fixed positions, whatever stands there?"""
    from circuits.circuit import Head
    from retrieval_interp import library
    from retrieval_interp.provenance import about

    model, task, _ = library.load(model_dir)
    from circuits.attention import roles_or_positions

    drawn = task.examples(examples, seed)
    rows = []
    for role in task.readout:
        to_roles, to_position = roles_or_positions(model, drawn, role)
        for layer, head in product(range(model.cfg.n_layers), range(model.cfg.n_heads)):
            share, most = to_roles[layer, head].max(dim=-1)
            shares = {"to_role": share.item(), "to_position": to_position[layer, head].item()}
            rows.append({"head": str(Head(layer, head)), "from": role, "role": drawn.roles.names[int(most)], **shares})
    if as_json:
        command = f"retrieval-interp where {model_dir} --examples {examples} --seed {seed}"
        print(json.dumps({"command": command, **about(model_dir, model), "heads": rows}, indent=2))
        return
    typer.echo("Most of a head's attention that one role gets, and one fixed position:")
    for row in rows:
        typer.echo(
            f"{row['head']} from {row['from']}: {row['to_role']:.2f} to {row['role']}, "
            f"{row['to_position']:.2f} to a position"
        )


@app.command()
def gradients(
    model_dir: Model,
    out: Annotated[Path | None, typer.Option(help="The HTML file to write, a heat map.")] = None,
    examples: AtOnce = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Is the gradient between two cells zero exactly where no computational path leads?

    Exits with 0 if it is, 1 if not.
    """
    from circuits.files import check_writable, write_atomically
    from circuits.page import figure_element, render_page
    from retrieval_interp import library
    from retrieval_interp.provenance import about

    folder = library.find(model_dir)
    if out is not None:
        check_writable(out)
    model, task, _ = library.load(folder)
    import torch

    from circuits.gradients import agreement, cell_gradients, loss_gradients
    from circuits.gradients_figure import gradients_figure

    drawn = task.examples(examples, seed)
    origin = {**about(model_dir, model), "precision": "float64"}
    # In single precision sharp attention comes down to zero by itself; tokens stay what they are.
    model.to(torch.float64, print_details=False)
    inputs, targets = (t.double() if t.is_floating_point() else t for t in (drawn.inputs, drawn.targets))
    with progress_bar("one backward pass for each cell") as progress:
        found = cell_gradients(model, inputs, progress=progress)
    held = agreement(found)
    early = min(int(drawn.roles[role].min()) for role in task.readout)
    paid = loss_gradients(model, task, replace(drawn, inputs=inputs, targets=targets))
    before = paid[:-1, :early]  # cells from which a path still leads to where something is asked
    future = (
        f"The loss is asked from position {early} on; it has a gradient in {int((before > 0).sum())} of the "
        f"{before.numel()} cells before that, and below the last layer: what stands there is paid for by the future."
    )
    command = f"retrieval-interp gradients {model_dir} --examples {examples} --seed {seed}"
    if out is not None:
        name = Path(model_dir).resolve().name
        labels = drawn.roles.labels(0, inputs.shape[1]) if examples == 1 else [""] * inputs.shape[1]
        figure = figure_element(gradients_figure(found, labels), "gradients")
        contents = {"name": name, "command": command, "sentences": (str(held), future), "figure": figure}
        write_atomically(out, render_page("gradients.html.jinja", "retrieval_interp", **contents))
    if as_json:
        paid_for = {"earlier_cells": before.numel(), "earlier_cells_with_loss_gradient": int((before > 0).sum())}
        print(json.dumps({"command": command, **origin, **asdict(held), **paid_for}, indent=2))
    else:
        typer.echo(str(held))
        typer.echo(future)
        if out is not None:
            typer.echo(f"The page is at {out}")
    raise typer.Exit(0 if held.exact else 1)

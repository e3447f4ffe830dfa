"""The commands on the theory of information flow."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import AtOnce, Json, Model, Seed
from retrieval_interp.cli.terminal import print_json, progress_bar

app = typer.Typer()


@app.command()
def depth(
    hops: Annotated[list[int] | None, typer.Argument(help="Numbers of hops D (default: 1 to 100).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for depth.csv and depth.html.")] = None,
    as_json: Json = False,
) -> None:
    """Compute how many layers D hops take, beside the paper's bound (section 5)."""
    from circuits.utils.files import check_writable
    from retrieval_interp.cli.terminal import print_depths
    from retrieval_interp.theory.depth import depths

    rows = depths(hops or range(1, 101))
    page = None
    if out is not None:
        from retrieval_interp.theory.depth_page import FILES, write_depth  # imports plotly, which is slow

        for name in FILES:
            check_writable(out / name)
        page = write_depth(rows, out, " ".join(["retrieval-interp theory depth", *map(str, hops or [])]))
    if as_json:
        document = [{**row._asdict(), "bound_paper": round(row.bound_paper, 10)} for row in rows]
        print(json.dumps(document, indent=2, separators=(",", ":")))
        return
    print_depths(rows)
    if page:
        typer.echo(f"The page is at {page}")


@app.command()
def construct(
    hops: Annotated[int, typer.Argument(min=1, max=15, help="Number of hops D, at most 15.")],
    examples: AtOnce = 256,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compile the transformer with the fewest layers of one head that solves D hops, and measure its loss.

    It reads tokens: four chains, and six symbols for each place in a chain. Exits with 0 if the loss is below 0.01
    (solved, section 8.2), 1 if not.
    """
    import torch

    from circuits import compile_circuit
    from circuits.losses.loss import Loss
    from retrieval_interp.ground_truth.chains import ChainTask
    from retrieval_interp.ground_truth.minimal_circuit import minimal_circuit
    from retrieval_interp.models.provenance import versions

    task, circuit = ChainTask(hops, n_chains=4), minimal_circuit(hops)
    model = compile_circuit(circuit, task)
    drawn = task.examples(examples, seed)
    with torch.no_grad():
        loss = Loss.of(task.losses(model(drawn.inputs), drawn), task.loss_components)
    heads = len(circuit.heads_with_paths)
    if as_json:
        command = f"retrieval-interp theory construct {hops} --examples {examples} --seed {seed} --json"
        print_json(command, {"versions": versions()}, hops=hops, heads=heads, loss=loss.to_json())
    else:
        for path in circuit.paths:
            typer.echo(str(path))
        typer.echo(f"{heads} heads, each in a layer of its own. The loss is {loss}.")
    raise typer.Exit(0 if loss.mean < 0.01 else 1)


@app.command()
def facts(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="YAML file with a question and its facts (see data/facts/).")
    ],
    as_json: Json = False,
) -> None:
    """Compute how many layers it takes to answer a question from facts that depend on one another (section 3.1).

    Exits with 0 if the answer can be known with the causal mask, 1 if not.
    """
    from retrieval_interp.theory.facts import load_facts
    from retrieval_interp.theory.information_flow import spread

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
        typer.echo(f"after {_layers(layer)} the last token of the query knows: {', '.join(tokens)}")
    raise typer.Exit(0 if causal is not None else 1)


def _layers(number: int | None) -> str:
    return (
        "infinitely many layers (it is never known)"
        if number is None
        else "1 layer"
        if number == 1
        else f"{number} layers"
    )


@app.command()
def gradients(
    model_dir: Model,
    out: Annotated[Path | None, typer.Option(help="HTML file to write, a heat map.")] = None,
    examples: AtOnce = 4,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Test whether gradients between cells are zero exactly where there is no computational path.

    Exits with 0 if gradients are zero exactly where there is no path, 1 if not.
    """
    from circuits.figures.page import figure_element, render_page
    from circuits.utils.files import check_writable, write_atomically
    from retrieval_interp.models import library
    from retrieval_interp.models.provenance import metadata

    folder = library.find(model_dir)
    if out is not None:
        check_writable(out)
    model, task, _ = library.load(folder)
    import torch

    from retrieval_interp.theory.gradients import agreement, cell_gradients, loss_gradients
    from retrieval_interp.theory.gradients_figure import gradients_figure

    drawn = task.examples(examples, seed)
    origin = {**metadata(model_dir, model), "precision": "float64"}
    # In single precision, sharp attention underflows to zero. Tokens are integers and are not converted.
    model.to(torch.float64, print_details=False)
    inputs, targets = (t.double() if t.is_floating_point() else t for t in (drawn.inputs, drawn.targets))
    with progress_bar("one backward pass for each cell") as progress:
        found = cell_gradients(model, inputs, progress=progress)
    held = agreement(found)
    early = min(int(drawn.roles[role].min()) for role in task.output_roles)
    paid = loss_gradients(model, task, replace(drawn, inputs=inputs, targets=targets))
    before = paid[:-1, :early]  # cells before the first output that the loss reads, with a path to it
    future = (
        f"The loss reads the outputs from position {early} on. Its gradient is nonzero in {int((before > 0).sum())} of "
        f"the {before.numel()} cells at earlier positions and below the last layer: they are trained for later outputs."
    )
    command = f"retrieval-interp theory gradients {model_dir} --examples {examples} --seed {seed}"
    if out is not None:
        name = Path(model_dir).resolve().name
        labels = drawn.roles.labels(0, inputs.shape[1]) if examples == 1 else [""] * inputs.shape[1]
        figure = figure_element(gradients_figure(found, labels), "gradients")
        contents = {"name": name, "command": command, "sentences": (str(held), future), "figure": figure}
        write_atomically(out, render_page("gradients.html.jinja", "retrieval_interp", **contents))
    if as_json:
        paid_for = {"earlier_cells": before.numel(), "earlier_cells_with_loss_gradient": int((before > 0).sum())}
        print_json(command, origin, **asdict(held), **paid_for)
    else:
        typer.echo(str(held))
        typer.echo(future)
        if out is not None:
            typer.echo(f"The page is at {out}")
    raise typer.Exit(0 if held.exact else 1)

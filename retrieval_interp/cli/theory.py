"""The commands on the theory of information flow."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import AtOnce, Json, Seed
from retrieval_interp.cli.terminal import print_depths, print_json

app = typer.Typer()


@app.command(epilog="Example: retrieval-interp theory depth 1 2 3 10")
def depth(
    hops: Annotated[list[int] | None, typer.Argument(help="Numbers of hops D (default: 1 to 100).")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for depth.csv and depth.html.")] = None,
    as_json: Json = False,
) -> None:
    """Compute how many layers D hops take, beside the paper's bound (section 5)."""
    from circuits.utils.files import check_writable
    from retrieval_interp.theory.depth import depths

    rows = depths(hops or range(1, 101))
    if out is not None:
        check_writable(out / "depth.html")
        from retrieval_interp.theory.figures import write_depth  # imports plotly, which is slow

        write_depth(rows, out, " ".join(["retrieval-interp theory depth", *map(str, hops or [])]))
    if as_json:
        document = [{**row._asdict(), "bound_paper": round(row.bound_paper, 10)} for row in rows]
        print(json.dumps(document, indent=2, separators=(",", ":")))
        return
    print_depths(rows)
    if out is not None:
        typer.echo(f"The page is at {out / 'depth.html'}")


@app.command(epilog="Example: retrieval-interp theory construct 5")
def construct(
    hops: Annotated[int, typer.Argument(min=1, max=15, help="Number of hops D, at most 15.")],
    examples: AtOnce = 256,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Compile the transformer with the fewest layers of one head that solves D hops, and measure its loss.

    It reads tokens: four chains, six symbols for each place. Exits with 0 if the loss is below 0.01, 1 if not.
    """
    import torch

    from circuits.ground_truth import compile_circuit
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
        print_json(command, {"versions": versions()}, hops=hops, heads=heads, loss=asdict(loss))
    else:
        for path in circuit.paths:
            typer.echo(str(path))
        typer.echo(f"{heads} heads, each in a layer of its own. The loss is {loss}.")
    raise typer.Exit(0 if loss.mean < 0.01 else 1)


@app.command(epilog="Example: retrieval-interp theory facts data/facts/relatives.yaml")
def facts(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="YAML with a question and its facts (see data/facts/).")],
    as_json: Json = False,
) -> None:
    """Compute how many layers it takes to answer a question from facts that depend on one another (section 3.1).

    Exits with 0 if the answer can be known with the causal mask, 1 if not.
    """
    from retrieval_interp.theory.facts import load_facts
    from retrieval_interp.theory.information_flow import spread

    read = load_facts(path)
    known = [sorted(state[read.reader] - read.layout.places) for state in spread(read.layout, causal=True)]
    causal, full = read.layers(causal=True), read.layers(causal=False)
    if as_json:
        document = {"asked": read.asked, "layers_full": full, "layers_causal": causal, "known_after": known}
        print(json.dumps(document, indent=2))
    else:
        typer.echo(f"{read.asked!r} takes {_layers(causal)} with the causal mask, {_layers(full)} without a mask.")
        for layer, tokens in enumerate(known):
            typer.echo(f"after {_layers(layer)} the last token of the query knows: {', '.join(tokens)}")
    raise typer.Exit(0 if causal is not None else 1)


def _layers(number: int | None) -> str:
    if number is None:
        return "infinitely many layers (it is never known)"
    return "1 layer" if number == 1 else f"{number} layers"

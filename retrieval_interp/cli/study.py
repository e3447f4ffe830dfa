"""The commands of the study that examine one trained model, and the paper's claims."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from retrieval_interp.cli.options import AtOnce, Json, Model, Seed, Threshold
from retrieval_interp.cli.terminal import print_claims, print_json, progress_bar, records

app = typer.Typer()


@app.command()
def emergence(
    run_dir: Annotated[str, typer.Argument(help="Folder of a training run, or a name such as transformer_d.")],
    circuit: Annotated[
        Path | None,
        typer.Option(
            help="Circuit YAML (default: that of RUN_DIR, or without one all paths with attention above 0.5 at times)."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for emergence.html and the tables.")] = Path("reports/emergence"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Measure when each attention path of a circuit emerges in training (section 9, Appendix D)."""
    import circuits
    from circuits.utils.files import check_writable
    from retrieval_interp.experiments import emergence as room
    from retrieval_interp.experiments.emergence_page import FILES, write_emergence
    from retrieval_interp.experiments.observations import observations
    from retrieval_interp.experiments.observed_circuit import circuit_to_follow
    from retrieval_interp.models import library

    run = library.find(run_dir)
    hypothesis = circuits.load_circuit(circuit) if circuit else circuit_to_follow(run)
    for name in FILES:
        check_writable(out / name)
    with progress_bar("following the paths") as progress:
        followed = room.emergence(run, hypothesis, seed=seed, progress=progress)
    command = f"retrieval-interp study emergence {run_dir} --seed {seed}"
    chosen = f"{command} --circuit {circuit}" if circuit else command
    page = write_emergence(followed, Path(run_dir).name, out, followed.kept or command, chosen)
    said = observations(followed)
    if as_json:
        table = followed.table()
        told = [asdict(one) for one in said]
        print_json(chosen, {"source": followed.source}, paths=records(table.reset_index()), observations=told)
        return
    typer.echo(f"Attention from {followed.source}")
    for path, step in followed.emerged.items():
        typer.echo(f"{path:40} " + (f"step {step:.0f}" if step is not None else "never"))
    for one in said:
        typer.echo(f"{one.name:>4} {one.verdict}: {one.sentence}")
    typer.echo(f"The page is at {page}")


@app.command("content-or-position")
def content_or_position(
    model_dir: Model,
    examples: AtOnce = 512,
    seed: Seed = 0,
    threshold: Threshold = 0.05,
    as_json: Json = False,
) -> None:
    """Find the heads that look at content, by mean ablation of every head."""
    import circuits
    from retrieval_interp.models import library
    from retrieval_interp.models.provenance import metadata

    model, task, _ = library.load(model_dir)
    from circuits.attention import roles_or_positions

    with progress_bar("content or position") as progress:
        found = circuits.content_or_position(
            model, task, n_examples=max(2, examples), threshold=threshold, seed=seed, progress=progress
        )
    drawn, heads = task.examples(examples, seed), found.to_json()["heads"]
    for role in task.output_roles:
        to_roles, to_position = roles_or_positions(model, drawn, role)
        for head in found.alone:
            share, most = to_roles[head].max(dim=-1)
            to = {"role": drawn.roles.names[int(most)], "to_role": share.item()}
            heads[str(head)].setdefault("from", {})[role] = {**to, "to_position": to_position[head].item()}
    if as_json:
        command = f"retrieval-interp study content-or-position {model_dir} --examples {examples} --seed {seed}"
        print_json(command, metadata(model_dir, model), heads=heads)
        return
    typer.echo("Loss with the head mean-ablated, and the head's largest attention to one role and to one position:")
    for head, said in heads.items():
        attention = "; ".join(
            f"from {role} {to['to_role']:.2f} to {to['role']}, {to['to_position']:.2f} to a position"
            for role, to in said["from"].items()
        )
        typer.echo(f"{head} looks at {said['looks_at']}, loss {said['mean_alone']['mean']:.4f}; {attention}")


@app.command()
def claims(
    out: Annotated[Path | None, typer.Option(help="Markdown file to write the table to.")] = None, as_json: Json = False
) -> None:
    """List every quantitative claim of the paper beside the measurement here."""
    from circuits.utils.files import check_writable, write_atomically
    from retrieval_interp.claims.claim import claims_page
    from retrieval_interp.claims.ledger import ledger
    from retrieval_interp.models.library import data_folder

    if out:
        check_writable(out)
    rows = ledger(data_folder())
    if out:
        write_atomically(out, claims_page(rows))
    if as_json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print_claims(rows)

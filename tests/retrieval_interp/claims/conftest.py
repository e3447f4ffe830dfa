"""Tables of whom everything is known by hand."""

import json
from dataclasses import asdict

import pytest

from retrieval_interp.claims.tables import FIGURE4, PAPER, SMALL
from retrieval_interp.models.presets import LITERAL, preset
from retrieval_interp.sweep.plan import load_plan

D = SMALL.folders["D"]
CIRCUIT = "heads:\n  L0H0: previous\n  L1H0: {query: pair1.second}\n"
D_CIRCUIT = "heads:\n  L1H0: {query: pair1.second}\n  L2H0: {query: pair2.second}\n  L3H0: {query: pair3.second}\n"


def path(name, uniform, identity):
    """A path in a report, with the losses without it."""
    return {"path": name, "needed": "directly", "losses": {"uniform": uniform, "identity": identity}}


def write_log(folder, steps, columns):
    """Write a log; every component falls from 1 to 0 at the end of an interval between the steps.

    Args:
        folder: the folder of the run.
        steps: the logged steps.
        columns: for every component the first step at which it is 0; the last of ``steps`` is the end of the run.
    """
    lines = []
    for step in steps:
        parts = {name: float(step < falls) for name, falls in columns.items()}
        loss = sum(parts.values()) / len(parts)
        record = {"step": step, "loss": loss, "components": parts}
        lines.append(json.dumps({**record, "validation": {"loss": loss, "components": parts}}))
    (folder / "log.jsonl").write_text("\n".join(lines) + "\n")


def write_config(folder, seed, recipe, loss=0.5, of="paper_abc"):
    exported = {"precision": "float16", "loss_float16": {"mean": loss, "standard_error": 0.0005}}
    made = {"preset": of, "seed": seed, "recipe": recipe, "exported": exported}
    (folder / "config.json").write_text(json.dumps({"format": 1, "task": {}, "architecture": {}, "made": made}))


def edit(file, change):
    """Change a JSON file in place."""
    document = json.loads(file.read_text())
    change(document)
    file.write_text(json.dumps(document))


@pytest.fixture
def tables(tmp_path):
    """Eight transformers; all learn x1 before x2.

    Those of recipe ``small`` have a circuit and a loss of 0.005. Those of the paper's have none, and a loss of 0.5.
    """
    for models in (SMALL, PAPER):
        for seed, (name, own) in enumerate(models.folders.items()):
            folder = tmp_path / own
            folder.mkdir(parents=True)
            of = "paper_d" if name == "D" else "paper_abc"
            recipe = asdict(preset(of, **LITERAL).recipe)
            if models is SMALL:
                write_config(folder, 7, {**recipe, "steps": 400}, 0.005, of)
            else:
                write_config(folder, 0 if name == "D" else seed, recipe, 0.5, of)
            end = 400 if models is SMALL else recipe["steps"]
            falls = {"x1": 200, "x2": 300, **({"x3": end} if name == "D" else {})}
            write_log(folder, [100, 200, 300, end], falls)
            if models is SMALL:
                write_circuit(folder)
    (tmp_path / D / "circuit.yaml").write_text(D_CIRCUIT)

    def of_d(report):
        names = [f"L{k}H0 query -> pair{k}.second" for k in (1, 2, 3)]
        report["paths"] = [path(name, 0.2, 0.4) for name in names]
        costs = dict(zip(names, (0.06, 0.5, 0.5), strict=True))
        report["paper"]["paths"] = {name: {"mean": cost, "standard_error": 0.01} for name, cost in costs.items()}

    edit(tmp_path / D / "report.json", of_d)
    columns = ",".join(f"L{k}H0 query -> pair{k}.second" for k in (1, 2, 3))
    rows = "0,0,0,0\n90,0,0,0\n100,1,0,0\n120,1,1,0\n200,1,1,1\n"  # above 0.5 at steps 95, 110 and 160
    for models in (SMALL, PAPER):
        (tmp_path / models.folders["D"] / "attention.csv").write_text(f"# by hand\nstep,{columns}\n{rows}")
    (tmp_path / "one_layer").mkdir()
    write_config(tmp_path / "one_layer", 0, {}, 0.02, "one_layer")
    made = {"command": "retrieval-interp theory construct 3", "hops": 3, "heads": 3}
    (tmp_path / "construction.json").write_text(json.dumps({**made, "loss": {"mean": 0.0, "standard_error": 0.0}}))
    for table, sweep in FIGURE4.items():
        (tmp_path / table).parent.mkdir(parents=True)
        (tmp_path / table).write_text(swept(sweep))
    return tmp_path


def write_circuit(folder):
    """Write a circuit of two heads and its report; the first joins all pairs."""
    loss = {"mean": 0.03, "standard_error": 0.001}
    report = {
        "metadata": {"model": folder.name},
        "verdicts": [],
        "passed": True,
        "loss": {"combined": 0.03, "details": {"combined": loss}},
        "paths": [path("L0H0 * -> previous", 0.07, 0.3), path("L1H0 query -> pair1.second", 0.2, 0.4)],
        "merges": [{"from": "L0H0", "into": "L1H0", "loss": 0.3, "standard_error": 0.01}],
        "paper": {
            "loss": {"mean": 0.04, "standard_error": 0.001},
            "paths": {
                "L0H0 * -> previous": {"mean": 0.06, "standard_error": 0.001},
                "L1H0 query -> pair1.second on slot 0, 2": {"mean": 0.5, "standard_error": 0.01},
            },
        },
    }
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "circuit.yaml").write_text(CIRCUIT)


def swept(sweep):
    """Return the table of a sweep: with the curriculum, xk is learned with k + 1 layers or more; alone, nothing is."""
    lines = ["# by hand", "preset,seed,symbol,loss,fell,seconds,device"]
    for run in load_plan(*sweep.plan).runs:
        chosen = preset(run.preset)
        for symbol in chosen.task.loss_components:
            learned = len(chosen.task.loss_components) > 1 and chosen.architecture.n_layers > (k := int(symbol[1:]))
            lines.append(f"{run.preset},{run.seed},{symbol},{f'0.1,{100 * k}' if learned else '0.75,'},1,cpu")
    return "\n".join(lines) + "\n"

"""Test discovery on known circuits: compile random circuits into transformers, and discover them.

    python -m benchmarks.recovery [--circuits 50] [--json]

Each planted circuit has 1 to 4 steps, 2 to 6 layers of 1 to 3 heads, and no redundant path. Every third circuit gets a
backup: a second head, in any layer, has one of the paths too. Some of the other heads are distractors, which attend to
random roles and write nothing or noise. The rest do nothing.

Two circuits are **equivalent** if each is a minimal set of planted paths that solves the task. Of a path and its
backup, a minimal set has only one. Precision is the share of the found paths that were planted and are not redundant.
Recall is one minus the share of the paths that must be added to the found ones to solve the task.
"""

import argparse
import json
import random
import sys
from dataclasses import dataclass

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.harder import Distractor, distract
from circuits import Circuit, Head, OneHot, discover
from circuits.circuit import AttentionPath
from circuits.ground_truth import compile_circuit, known_after, solves
from retrieval_interp.ground_truth.chains import ChainTask
from retrieval_interp.ground_truth.minimal_circuit import without_path, without_redundant_paths
from retrieval_interp.models.provenance import versions


@dataclass(frozen=True)
class Planted:
    """A planted circuit with its task, the size of the transformer, its backups and its distractors."""

    task: ChainTask
    n_layers: int
    n_heads: int
    circuit: Circuit
    backups: tuple[AttentionPath, ...]
    distractors: dict[Head, Distractor]


def plant(
    seed: int,
    steps: tuple[int, int] = (1, 4),
    layers: tuple[int, int] = (2, 6),
    heads: tuple[int, int] = (1, 3),
    n_chains: int = 3,
) -> Planted:
    """Draw a task, a minimal circuit for it, a backup if the seed is a multiple of 3, and distractors.

    The numbers of steps, layers and heads are drawn from ranges, both ends included.
    """
    rng = random.Random(seed)
    while True:
        task = ChainTask(rng.randint(*steps), n_chains)
        n_layers, n_heads = rng.randint(*layers), rng.randint(*heads)
        grown = _grow(rng, task, n_layers, n_heads)
        if solves(grown, task):
            break
    grown = without_redundant_paths(grown, task)
    circuit, backups = with_backup(rng, grown, task, n_layers, n_heads) if seed % 3 == 0 else (grown, ())
    distractors = {
        Head(layer, head): Distractor(_random_rows(rng, task), rng.choice([0.0, 1.0]))
        for layer in range(n_layers)
        for head in range(n_heads)
        if Head(layer, head) not in circuit.heads and rng.random() < 0.7
    }
    return Planted(task, n_layers, n_heads, circuit, backups, distractors)


def _grow(rng: random.Random, task: ChainTask, n_layers: int, n_heads: int) -> Circuit:
    """Draw random paths, each to a target that knows something new to its source; they need not solve the task."""
    heads: dict[Head, dict[str, str]] = {}
    before = task.examples(4, seed=0).roles.before
    for layer in range(n_layers):
        known = known_after(Circuit({head: OneHot(rows) for head, rows in heads.items()}), task)[-1]
        for source in task.roles:
            neighbour = source.replace("second", "first") if source.endswith("second") else None
            useful = [t for t in before(source) if (known[source] & known[t] or t == neighbour)]
            useful = [t for t in useful if known[t] - known[source]]
            if useful and rng.random() < 0.6:
                heads.setdefault(Head(layer, rng.randrange(n_heads)), {})[source] = rng.choice(useful)
    return Circuit({head: OneHot(rows) for head, rows in heads.items()})


def with_backup(
    rng: random.Random,
    circuit: Circuit,
    task: ChainTask,
    n_layers: int,
    n_heads: int,
    elsewhere: bool = False,
) -> tuple[Circuit, tuple[AttentionPath, ...]]:
    """Add a backup: give one path also to another head in which it is enough alone; ``elsewhere``, in another layer.

    Returns:
        the circuit and the two paths; the unchanged circuit and no paths if no head can be the backup.
    """
    path = rng.choice(circuit.paths)
    layers = [layer for layer in range(n_layers) if not (elsewhere and layer == path.head.layer)]
    heads = [Head(layer, index) for layer in layers for index in range(n_heads)]
    for other in rng.sample(heads, len(heads)):
        own = circuit.heads.get(other)
        rows = dict(own.rows) if isinstance(own, OneHot) else {}
        both = circuit.with_head(other, OneHot({**rows, path.source: path.target}))
        if path.source not in rows and solves(without_path(both, path), task):
            return both, (path, AttentionPath(other, path.source, path.target))
    return circuit, ()


def _random_rows(rng: random.Random, task: ChainTask) -> dict[str, str]:
    """Draw the rows of a distractor: random sources, each with a random earlier target."""
    before = task.examples(4, seed=0).roles.before
    sources = [role for role in task.roles if before(role)]
    chosen = rng.sample(sources, rng.randint(1, len(sources)))
    return {source: rng.choice(before(source)) for source in chosen}


def recover(planted: Planted) -> dict[str, object]:
    """Compile a planted circuit, discover it, and compare the two."""
    sizes = {"n_layers": planted.n_layers, "n_heads": planted.n_heads}
    model = distract(compile_circuit(planted.circuit, planted.task, **sizes), planted.task, planted.distractors)
    found = discover(model, planted.task, n_examples=256)
    paths, known = set(found.circuit.paths), set(planted.circuit.paths)
    needed = {path for path in known if not solves(without_path(planted.circuit, path), planted.task)}
    alone = Circuit(planted.circuit.heads)
    for path in known - paths:
        alone = without_path(alone, path)
    useful = without_redundant_paths(alone, planted.task).paths
    missing = 0 if solves(alone, planted.task) else max(1, len(needed - paths))
    return {
        "steps": planted.task.n_steps,
        "layers": planted.n_layers,
        "heads": planted.n_heads,
        "planted": len(known),
        "backups": len(planted.backups) // 2,
        "distractors": len(planted.distractors),
        "found": len(paths),
        "precision": len(useful) / len(paths) if paths else 0.0,
        "recall": 1 - missing / len(needed) if needed else 1.0,
        "loss": found.combined.loss.mean,
        "wrong": [str(path) for path in sorted(paths - known)],
        "missed": [str(path) for path in sorted(needed - paths)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circuits", type=at_least_one, default=50)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.circuits):
        rows.append({"seed": seed, **recover(plant(seed))})
        print(f"\r{len(rows)} of {arguments.circuits} circuits", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    summary = {key: sum(row[key] for row in rows) / len(rows) for key in ("precision", "recall")}
    if arguments.json:
        command = f"python -m benchmarks.recovery --circuits {arguments.circuits} --json"
        print(json.dumps({"command": command, **versions(), **summary, "circuits": rows}, indent=2))
        return
    columns = ("seed", "steps", "layers", "heads", "planted", "backups", "distractors", "found", "precision", "recall")
    print("  ".join(columns))
    for row in rows:
        print("  ".join(f"{row[c]:>{len(c)}}" for c in columns), *row["wrong"], *row["missed"])
    print(f"precision {summary['precision']:.3f}, recall {summary['recall']:.3f} over {len(rows)} circuits")


if __name__ == "__main__":
    main()

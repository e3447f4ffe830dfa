"""Test path patching on known edges: compile random circuits into transformers, and find how their heads find places.

    python -m benchmarks.composition [--circuits 30] [--json]

The circuits are those of ``benchmarks/recovery.py``. Their true edges follow from their construction
(``circuits/ground_truth/compiled_edges.py``). Precision is the share of the found edges that are true, recall the share
of the true edges that are found. An undecided edge (within three standard errors of its threshold) is not found.
"""

import argparse
import json
import sys
import time

from benchmarks.arguments import at_least_one
from benchmarks.recovery import Planted, plant
from circuits.composition.path_patching import path_patching
from circuits.ground_truth.compile import compile_circuit
from circuits.ground_truth.compiled_edges import compiled_edges
from retrieval_interp.models.provenance import versions


def edges_of(planted: Planted, n_examples: int = 64) -> dict[str, object]:
    """Compile a planted circuit, find its edges, and compare them with the true ones."""
    model = compile_circuit(
        planted.circuit,
        planted.problem,
        n_layers=planted.n_layers,
        n_heads=planted.n_heads,
        distractors=planted.distractors,
    )
    began = time.perf_counter()
    result = path_patching(model, planted.problem, planted.circuit, n_examples=n_examples)
    true = {
        (edge.sender, edge.path, edge.input) for edge in compiled_edges(planted.circuit, planted.problem) if edge.found
    }
    found = {(edge.sender, edge.path, edge.input) for edge in result.found}
    return {
        "steps": planted.problem.n_steps,
        "layers": planted.n_layers,
        "heads": planted.n_heads,
        "paths": len(planted.circuit.paths),
        "possible": len(result.edges),
        "true": len(true),
        "found": len(found),
        "right": len(true & found),
        "undecided": len(result.undecided),
        "wrong": [_said(edge) for edge in sorted(found - true)],
        "missed": [_said(edge) for edge in sorted(true - found)],
        "seconds": round(time.perf_counter() - began, 2),
    }


def _said(edge: tuple[object, object, str]) -> str:
    sender, path, which = edge
    return f"{sender} -> {path} ({which})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--circuits", type=at_least_one, default=30)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = []
    for seed in range(arguments.circuits):
        rows.append({"seed": seed, **edges_of(plant(seed))})
        print(f"\r{len(rows)} of {arguments.circuits} circuits", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    total = {key: sum(row[key] for row in rows) for key in ("possible", "true", "found", "right", "undecided")}
    summary = {**total, "precision": total["right"] / total["found"], "recall": total["right"] / total["true"]}
    if arguments.json:
        command = f"python -m benchmarks.composition --circuits {arguments.circuits} --json"
        print(json.dumps({"command": command, **versions(), **summary, "circuits": rows}, indent=2))
        return
    columns = (
        "seed",
        "steps",
        "layers",
        "heads",
        "paths",
        "possible",
        "true",
        "found",
        "right",
        "undecided",
        "seconds",
    )
    print("  ".join(columns))
    for row in rows:
        print("  ".join(f"{row[c]:>{len(c)}}" for c in columns), *row["wrong"], *row["missed"])
    print(f"precision {summary['precision']:.3f}, recall {summary['recall']:.3f} over {len(rows)} circuits")


if __name__ == "__main__":
    main()

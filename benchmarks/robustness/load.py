"""Measure the memory and time of several kinds of work, each in its own process.

    python -m benchmarks.robustness.load [--json] [KIND ...]

    transformer_a    validation (with the tests against chance), discovery, and 20 training steps of the preset
    paths            validation of a circuit of 3,072 paths in 48 layers of 32 heads, on 8 examples
    tokens           validation on sequences of 2,052 positions, on 4 examples
    examples         validation of an induction circuit on 10^5 examples

``peak_mib`` is the peak memory above the memory before the work. ``bound_mib`` is the bound for a validation that
follows from evaluation.py and sample.py. Exits with 1 if a peak exceeds its bound.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.robustness.memory import MIB, peak, reset
from circuits import Circuit, Head, OneHot, Problem, discover, validate
from circuits.losses import sample
from circuits.losses.sequential_test import ENOUGH
from circuits.model import batching
from circuits.model.batching import sequences_at_once
from circuits.model.hooked_transformer import HookedTransformer
from circuits.null_models.chance import against_chance
from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.models.presets import Architecture
from retrieval_interp.models.provenance import versions
from retrieval_interp.training.training import TrainingRun, start_run

NEVER_LOW = 1e-9  # a threshold; as with a true circuit, no removal leaves the loss low


def measured(work: Callable[[], object]) -> dict[str, float]:
    """Measure the peak MiB and the seconds of some work."""
    before, started = reset(), time.perf_counter()
    work()
    return {"peak_mib": (peak() - before) / MIB, "seconds": time.perf_counter() - started}


def bound(model: HookedTransformer, problem: Problem, circuit: Circuit, n_examples: int) -> float:
    """Return the bound on the memory of a validation, in MiB."""
    cfg, first = model.cfg, problem.examples(1, 0)
    n_positions = first.inputs.shape[1]
    at_once = sequences_at_once(cfg.n_heads, n_positions)
    each = sum(t.nbytes for t in (first.inputs, first.targets, first.roles.positions))
    rows = at_once * n_positions * 4 * (12 * cfg.d_model + 6 * cfg.n_heads * cfg.d_head)
    attention = 4 * (8 * at_once * cfg.n_heads * n_positions**2 + 2 * batching.ENTRIES_AT_ONCE)
    examples = 3 * each * min(n_examples, sample.BLOCK)
    n_paths, n_heads = len(circuit.paths), len(circuit.heads)
    few = 5 * n_heads + n_paths * (len(problem.roles) + 40) + 400  # circuits that are measured on few examples
    losses = 4 * len(problem.loss_components) * ((2 + 2 * n_paths) * n_examples + few * ENOUGH) + 8192 * (
        few + 2 * n_paths
    )
    return (rows + attention + examples + losses) / MIB


def validated(
    model: HookedTransformer, problem: Problem, circuit: Circuit, n_examples: int, threshold: float
) -> dict[str, float]:
    """Measure a validation with the tests against chance, as the command runs them."""
    circuit.check(problem.examples(1, 0).roles, model.cfg.n_layers, model.cfg.n_heads)

    def work() -> None:
        asked = {"n_examples": n_examples, "seed": 1, "threshold": threshold}
        validate(model, problem, circuit, **asked)
        against_chance(model, problem, circuit, **asked)

    return {**measured(work), "bound_mib": bound(model, problem, circuit, n_examples)}


def random(problem: RetrievalTask, n_layers: int, n_heads: int, rows: dict[str, str]) -> tuple[Any, Circuit]:
    """Return an untrained model, and a circuit in which every head has the same paths."""
    model = VectorTransformer(Architecture(n_layers, n_heads, 4 * n_heads, 4).config(problem)).eval()
    heads = [Head(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return model, Circuit(dict.fromkeys(heads, OneHot(rows)))


def transformer_a_validate() -> dict[str, float]:
    return validated(*load("transformer_a"), 1024, 0.05)  # type: ignore[arg-type]


def transformer_a_discover() -> dict[str, float]:
    model, task, _ = load("transformer_a")
    return measured(lambda: discover(model, task))


def transformer_a_train() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        start_run(Path(folder), "transformer_a", steps=20)
        run = TrainingRun(Path(folder), torch.device("cpu"), compiled=False)
        return measured(lambda: [run.advance() for _ in range(20)])


def paths() -> dict[str, float]:
    problem = RetrievalTask(2, n_chains=2)
    model, circuit = random(problem, 48, 32, {"query": "pair1.second", "pair1.second": "pair1.first"})
    return {"paths": len(circuit.paths), **validated(model, problem, circuit, 8, NEVER_LOW)}


def tokens() -> dict[str, float]:
    problem = RetrievalTask(4, n_chains=228)
    model, circuit = random(problem, 2, 2, {"query": "pair1.second"})
    return {"positions": problem.n_positions, **validated(model, problem, circuit, 4, NEVER_LOW)}


def examples() -> dict[str, float]:
    return validated(*load("induction"), 10**5, 0.05)  # type: ignore[arg-type]


KINDS = {
    kind.__name__: kind
    for kind in (transformer_a_validate, transformer_a_discover, transformer_a_train, paths, tokens, examples)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    chosen = arguments.kinds or [*KINDS]
    if unknown := next((name for name in chosen if name not in KINDS), None):
        parser.error(f"unknown kind {unknown!r}; expected some of {', '.join(KINDS)}")
    if arguments.here:
        torch.set_num_threads(1)
        print(json.dumps(KINDS[chosen[0]]()))
        return
    found = {}
    for name in chosen:
        command = [sys.executable, "-m", "benchmarks.robustness.load", "--here", name]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
        found[name] = {key: round(value, 1) for key, value in json.loads(output.splitlines()[-1]).items()}
        print(name, found[name], file=sys.stderr if arguments.json else sys.stdout, flush=True)
    if arguments.json:
        command = " ".join(["python -m benchmarks.robustness.load", *arguments.kinds])
        print(json.dumps({"command": command, **versions(), "threads": 1, "kinds": found}, indent=2))
    sys.exit(1 if any(one["peak_mib"] > one.get("bound_mib", one["peak_mib"]) for one in found.values()) else 0)


if __name__ == "__main__":
    main()

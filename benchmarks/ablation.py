"""Compare our evaluation of circuits with a simple loop: every circuit alone, with hooks, on all examples.

    python -m benchmarks.ablation [--model transformer_a] [--examples 1024] [--json]

Measured for `validate` and `against_chance` on the model's circuit, and for `discover`:

    ratio                  the loop's time over ours, for the same circuits, each on all examples
    ratio_same_examples    the same, with the loop only on the examples that we needed to decide each circuit
    ratio_chance           the same for `against_chance`, which decides nothing early
    limit                  the ratio if we spent time on matrix products only, at the machine's rate

The loop is timed on a random sample of the circuits that we evaluated, and this time is scaled to their number. Its
batches have 128 or 256 examples, whichever is faster. ``growth``: the exponent with which the time of `validate` grows
when one size is doubled twice and nothing is decided early.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.arguments import at_least, loadable
from circuits import Circuit, Head, OneHot, Problem, Uniform, against_chance, discover, evaluate, run_ablated, validate
from circuits.ablation.evaluation import Piece, pieces
from circuits.losses import sequential_test as judge_module
from circuits.model.block import MLP_ROWS_AT_ONCE
from circuits.model.hooked_transformer import HookedTransformer
from circuits.problem import Examples
from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.models.presets import Architecture
from retrieval_interp.models.provenance import versions

SAMPLED, TIMED = 24, 256  # the numbers of circuits and examples on which the loop is timed


@dataclass
class Recorder:
    """A substitute for ``pieces`` that records every circuit that is run, with the number of examples."""

    run: list[tuple[Circuit, int]] = field(default_factory=list)

    def __call__(
        self, model: HookedTransformer, problem: Problem, examples: Examples, circuits: Sequence[Circuit]
    ) -> Iterator[Piece]:
        for piece in pieces(model, problem, examples, circuits):
            yield replace(piece, losses=partial(self._recorded, piece, circuits))

    def _recorded(self, piece: Piece, circuits: Sequence[Circuit]) -> Tensor:
        n_examples = piece.examples.stop - piece.examples.start
        self.run += [(circuits[index], n_examples) for index in piece.circuits]
        return piece.losses()


def recorded(work: Callable[[], object]) -> tuple[float, list[tuple[Circuit, int]]]:
    """Return the seconds that some work takes, and every circuit that it runs with its number of examples, by batch."""
    recorder = Recorder()
    with patch.object(judge_module, "pieces", recorder):
        started = time.perf_counter()
        work()
        return time.perf_counter() - started, recorder.run


@torch.no_grad()
def loop(model: HookedTransformer, problem: Problem, examples: Examples, circuit: Circuit, at_once: int) -> Tensor:
    """Return the losses of one circuit, run with hooks."""
    parts = [examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once)]
    return torch.cat([problem.losses(run_ablated(model, circuit, part), part) for part in parts])


def loop_seconds_per_example(
    model: HookedTransformer, problem: Problem, asked: list[tuple[Circuit, int]], n_examples: int
) -> tuple[float, float]:
    """Return the loop's seconds per circuit and example, and the largest difference of its mean losses from ours."""
    rng = random.Random(0)
    examples = problem.examples(n_examples, seed=0)
    best: dict[int, list[float]] = {}
    furthest = 0.0
    for circuit, _ in rng.sample(asked, min(SAMPLED, len(asked))):
        for at_once in sorted({128, n_examples}):
            started = time.perf_counter()
            losses = loop(model, problem, examples, circuit, at_once)
            best.setdefault(at_once, []).append(time.perf_counter() - started)
        ours = evaluate(model, problem, examples, [circuit])[0]
        furthest = max(furthest, (ours.mean() - losses.mean()).abs().item())
        print(".", end="", file=sys.stderr, flush=True)
    return min(float(np.mean(taken)) for taken in best.values()) / n_examples, furthest


def products_per_second(d_model: int) -> float:
    """Measure the floating-point operations per second of an MLP's matrix product that fits into the cache."""
    rows, weights = torch.randn(MLP_ROWS_AT_ONCE, d_model), torch.randn(d_model, 4 * d_model)
    taken = []
    for _ in range(200):
        started = time.perf_counter()
        rows @ weights
        taken.append(time.perf_counter() - started)
    return 2 * rows.numel() * weights.shape[1] / float(np.median(taken))


def random_model(n_layers: int, n_heads: int, n_steps: int) -> tuple[VectorTransformer, RetrievalTask, Circuit]:
    """Return an untrained model with a task and a circuit: paths in every third layer, uniform heads elsewhere."""
    task = RetrievalTask(n_steps)
    model = VectorTransformer(Architecture(n_layers, n_heads, 128, 128 // n_heads).config(task)).eval()
    one_hot = OneHot({"query": "pair1.second", "pair1.second": "pair1.first"})
    heads = [Head(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return (
        model,
        task,
        Circuit({head: one_hot if head.layer % 3 == 0 and not head.index else Uniform() for head in heads}),
    )


def growth() -> dict[str, dict[str, object]]:
    """Return for every size our times (the better of two each), and the exponent with which they grow."""
    sizes = {"layers": (4, 8, 16), "heads": (1, 2, 4), "examples": (128, 256, 512), "D": (2, 4, 8)}
    base = {"layers": 6, "heads": 1, "examples": 256, "D": 3}
    found: dict[str, dict[str, object]] = {}
    for name, values in sizes.items():
        seconds = []
        for value in values:
            at = {**base, name: value}
            model, task, circuit = random_model(at["layers"], at["heads"], at["D"])
            taken = []
            for _ in range(2):
                started = time.perf_counter()
                with patch.object(judge_module, "FEW", at["examples"]):  # every circuit on all examples
                    validate(model, task, circuit, n_examples=at["examples"], threshold=1e6)
                taken.append(time.perf_counter() - started)
            seconds.append(min(taken))
            print(".", end="", file=sys.stderr, flush=True)
        slope = float(np.polyfit(np.log(values), np.log(seconds), 1)[0])
        found[name] = {"sizes": values, "seconds": seconds, "exponent": slope}
    return found


def compared(
    name: str,
    model: HookedTransformer,
    problem: Problem,
    n_examples: int,
    work: Callable[[], object],
    decides_early: bool = True,
) -> dict[str, object]:
    """Compare some work with the loop over the same circuits, and with its matrix products alone."""
    taken, asked = recorded(work)
    each, furthest = loop_seconds_per_example(model, problem, asked, min(n_examples, TIMED))
    rate, n_threads = products_per_second(model.cfg.d_model), torch.get_num_threads()
    torch.set_num_threads(1)  # the counter needs one thread
    with FlopCounterMode(display=False) as counter:
        work()
    torch.set_num_threads(n_threads)
    at_least = counter.get_total_flops() / rate
    n_circuits = len({circuit for circuit, _ in asked})
    same_examples = each * sum(n for _, n in asked)
    loop_takes = each * n_circuits * n_examples if decides_early else same_examples
    return {
        f"ratio_{name}": loop_takes / taken,
        **({f"ratio_{name}_same_examples": same_examples / taken} if decides_early else {}),
        f"limit_{name}": loop_takes / at_least,
        f"seconds_{name}": taken,
        f"seconds_{name}_products": at_least,
        f"circuits_{name}": n_circuits,
        f"furthest_loss_{name}": furthest,
        f"gflops_per_second_{name}": rate / 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=loadable, default="transformer_a")
    parser.add_argument("--examples", type=at_least(2), default=1024)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    model, task, circuit = load(arguments.model)
    n = arguments.examples
    result: dict[str, object] = compared(
        "validation", model, task, n, lambda: validate(model, task, circuit, n_examples=n)
    )
    result |= compared(
        "chance",
        model,
        task,
        n,
        lambda: against_chance(model, task, circuit, n_examples=n),
        decides_early=False,
    )
    result |= compared("discovery", model, task, n, lambda: discover(model, task))
    result |= {
        "growth": growth(),
        **versions(),
        "threads": torch.get_num_threads(),
    }
    print(file=sys.stderr)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


if __name__ == "__main__":
    main()

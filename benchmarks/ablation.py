"""Our evaluator against the loop that one writes first: every circuit run alone, with hooks.

    python -m benchmarks.ablation [--model transformer_a] [--examples 1024] [--json]

    validation     all of `validate` on the model's circuit (steps 3, 5 and 6, and the rivals), against the loop
                   over the same circuits, all on all examples
    discovery      all of `discover`, against the loop over the same circuits on the same examples as ours;
                   ``ratio_discovery_all_examples``: against the loop that runs each on all, as for validation

The loop's time is that of a random sample of the circuits that ours evaluated, run in between, times their number; the
batch is ours where that is faster for the loop. ``ratio_same_examples`` leaves out what ours saves by deciding early.
``exponents``: how our time grows, as a power, when one size is doubled twice.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits import Circuit, Head, OneHot, Problem, Uniform, discover, evaluate, run_ablated, validate
from circuits import judge as judge_module
from circuits.problem import Examples
from retrieval_interp import RetrievalTask, VectorTransformer, load
from retrieval_interp.presets import Architecture

SAMPLED = 24  # circuits that the loop really runs


@dataclass
class Recorder:
    """Stands in the place of ``evaluate`` and notes what was asked of it."""

    asked: list[tuple[Circuit, int]] = field(default_factory=list)

    def __call__(
        self, model: HookedTransformer, problem: Problem, examples: Examples, circuits: Sequence[Circuit], *rest
    ):
        self.asked += [(circuit, len(examples)) for circuit in circuits]
        return evaluate(model, problem, examples, circuits, *rest)


def recorded(work: Callable[[], object]) -> tuple[float, list[tuple[Circuit, int]]]:
    """Seconds that the work takes, and every circuit that it evaluates with its number of examples."""
    recorder = Recorder()
    with patch.object(judge_module, "evaluate", recorder):
        started = time.perf_counter()
        work()
        return time.perf_counter() - started, recorder.asked


@torch.no_grad()
def loop(model: HookedTransformer, problem: Problem, examples: Examples, circuit: Circuit, at_once: int) -> Tensor:
    """The losses of one circuit, run with hooks."""
    parts = [examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once)]
    return torch.cat([problem.losses(run_ablated(model, circuit, part), part) for part in parts])


def loop_seconds_per_example(
    model: HookedTransformer, problem: Problem, asked: list[tuple[Circuit, int]], n_examples: int
) -> tuple[float, float]:
    """Seconds per circuit and example of the loop, and how far its mean losses lie from ours at most."""
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


def random_model(n_layers: int, n_heads: int, n_steps: int) -> tuple[VectorTransformer, RetrievalTask, Circuit]:
    task = RetrievalTask(n_steps)
    model = VectorTransformer(Architecture(n_layers, n_heads, 128, 128 // n_heads).config(task)).eval()
    one_hot = OneHot({"query": "pair1.second", "pair1.second": "pair1.first"})
    heads = [Head(layer, head) for layer in range(n_layers) for head in range(n_heads)]
    return (
        model,
        task,
        Circuit({head: one_hot if head.layer % 3 == 0 and not head.head else Uniform() for head in heads}),
    )


def exponents() -> dict[str, float]:
    """For every size, the slope of our time over it, both in logarithms."""
    sizes = {"layers": (4, 8, 16), "heads": (1, 2, 4), "examples": (128, 256, 512), "D": (2, 4, 8)}
    base = {"layers": 6, "heads": 1, "examples": 256, "D": 3}
    slopes = {}
    for name, values in sizes.items():
        taken = []
        for value in values:
            at = {**base, name: value}
            model, task, circuit = random_model(at["layers"], at["heads"], at["D"])
            started = time.perf_counter()
            validate(model, task, circuit, n_examples=at["examples"], threshold=1e6)  # nothing is decided early
            taken.append(time.perf_counter() - started)
            print(".", end="", file=sys.stderr, flush=True)
        slopes[name] = float(np.polyfit(np.log(values), np.log(taken), 1)[0])
    return slopes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="transformer_a")
    parser.add_argument("--examples", type=int, default=1024)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    model, task, circuit = load(arguments.model)
    n = arguments.examples
    validating, validated = recorded(lambda: validate(model, task, circuit, n_examples=n))
    each, far = loop_seconds_per_example(model, task, validated, n)
    discovering, discovered = recorded(lambda: discover(model, task))
    each_found, far_found = loop_seconds_per_example(model, task, discovered, 128)
    different = len({circuit for circuit, _ in validated})
    result = {
        "ratio_validation": each * different * n / validating,
        "ratio_validation_same_examples": each * sum(n for _, n in validated) / validating,
        "ratio_discovery": each_found * sum(n for _, n in discovered) / discovering,
        "ratio_discovery_all_examples": each_found * len({circuit for circuit, _ in discovered}) * n / discovering,
        "seconds_validation": validating,
        "seconds_discovery": discovering,
        "circuits_validation": different,
        "circuits_discovery": len({circuit for circuit, _ in discovered}),
        "furthest_loss": max(far, far_found),
        "exponents": exponents(),
        "torch": torch.__version__,
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

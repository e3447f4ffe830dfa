"""Compare our training step with a plain training loop, and with its matrix products alone.

    python -m benchmarks.training [--rounds 10] [--json]

For presets paper_abc and paper_d, in turns within one run:

    plain       a simple step: eager fp32 VectorTransformer, torch.optim.AdamW, gradients clipped
    ours        retrieval_interp.training.training_step.TrainingStep
    returning   the same, with freed memory returned to the system after each step (glibc's default)
    products    the matrix products that the loss needs (forward, and two for each in the backward pass) in the
                precision of our step, on existing operands; no step can be faster
    generating  the generation of one batch, which is part of our step

Medians: ``ratio_eager`` is plain/ours, ``share_of_limit`` products/ours, ``share_generating`` generating/ours,
``ratio_returning`` returning/ours.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import torch

from benchmarks.arguments import at_least_one
from retrieval_interp.models.build import VectorTransformer
from retrieval_interp.models.presets import Preset, preset
from retrieval_interp.training.training_step import TrainingStep, keep_freed_memory


def plain_step(preset: Preset) -> Callable[[], object]:
    """Return a function that takes one plain step."""
    model = VectorTransformer(preset.config)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=preset.recipe.lr, weight_decay=preset.recipe.weight_decay)
    draws = preset.task.training_set(preset.recipe.batch, seed=0)

    def step() -> None:
        examples = preset.task.assemble(draws)
        optimizer.zero_grad()
        preset.task.losses(model(examples.inputs), examples).mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()

    return step


def our_step(preset: Preset) -> tuple[Callable[[], object], torch.dtype]:
    """Return a function that takes one of our steps, and the precision of its matrix products."""
    model = VectorTransformer(preset.config)
    take = TrainingStep(model, preset.task, preset.recipe)
    take.compile()
    draws = preset.task.training_set(preset.recipe.batch, seed=0)
    dtype = torch.bfloat16 if take.autocast else torch.float32
    return lambda: take(preset.task.assemble(draws), preset.recipe.lr), dtype


def returning(step: Callable[[], object]) -> Callable[[], None]:
    """The same step with glibc's default, which returns freed memory to the system."""

    def run() -> None:
        keep_freed_memory(False)
        step()
        keep_freed_memory()

    return run


def products(preset: Preset, dtype: torch.dtype) -> tuple[Callable[[], object], float]:
    """Return a function that computes the matrix products of one step, and their number of operations.

    The last layer writes only at the positions that the loss reads.
    """
    shape, task, batch = preset.architecture, preset.task, preset.recipe.batch
    width, heads, lower = shape.d_model, shape.n_heads * shape.d_head, shape.n_layers - 1
    every, read = task.n_positions, len(range(task.n_positions)[task.trained_positions])
    linear = [(every, task.d_input, width, 1), (read, width, task.d_output, 1), (read, width, heads, 1)]
    linear.append((every, width, heads, 3 * lower + 2))  # of the last layer, keys and values only
    for positions, layers in ((every, lower), (read, 1)):
        linear.append((positions, heads, width, layers))
        if shape.mlp:
            linear += [(positions, width, 4 * width, layers), (positions, 4 * width, width, layers)]
    sizes = []  # (batch, m, k, n, number of times)
    for positions, k, n, times in linear:
        rows = batch * positions
        sizes += [(1, rows, k, n, times), (1, rows, n, k, times), (1, k, rows, n, times)]
    matrices = batch * shape.n_heads
    for positions, layers in ((every, lower), (read, 1)):
        sizes += [(matrices, positions, shape.d_head, every, 2 * layers)]
        sizes += [(matrices, positions, every, shape.d_head, 2 * layers)]
        sizes += [(matrices, every, positions, shape.d_head, 2 * layers)]
    operands = [(torch.randn(b, m, k, dtype=dtype), torch.randn(b, k, n, dtype=dtype), t) for b, m, k, n, t in sizes]

    def multiply() -> None:
        for left, right, times in operands:
            for _ in range(times):
                left @ right

    return multiply, sum(2.0 * b * m * k * n * times for b, m, k, n, times in sizes)


def seconds(step: Callable[[], object]) -> float:
    started = time.perf_counter()
    step()
    return time.perf_counter() - started


def measure(name: str, rounds: int) -> dict[str, float | str]:
    chosen = preset(name)
    ours, dtype = our_step(chosen)
    multiply, operations = products(chosen, dtype)
    training_set = chosen.task.training_set(10 * chosen.recipe.batch, seed=0)
    index = torch.randperm(len(training_set))[: chosen.recipe.batch]
    steps = {
        "plain": plain_step(chosen),
        "ours": ours,
        "returning": returning(ours),
        "products": multiply,
        "generating": lambda: chosen.task.assemble(training_set.take(index)),
    }
    taken: dict[str, list[float]] = {which: [] for which in steps}
    for turn in range(rounds + 2):
        for which, step in steps.items():
            duration = seconds(step)
            if turn >= 2:  # the first two rounds are warm-up
                taken[which].append(duration)
        print(f"\r{name}: round {max(0, turn - 1)} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    median = {which: statistics.median(durations) for which, durations in taken.items()}
    return {
        "preset": name,
        **{f"seconds_{which}": duration for which, duration in median.items()},
        "precision": str(dtype).removeprefix("torch."),
        "gflops_per_second_products": operations / median["products"] / 1e9,
        "ratio_eager": statistics.median(p / o for p, o in zip(taken["plain"], taken["ours"], strict=True)),
        "ratio_returning": statistics.median(r / o for r, o in zip(taken["returning"], taken["ours"], strict=True)),
        "share_generating": median["generating"] / median["ours"],
        "share_of_limit": statistics.median(p / o for p, o in zip(taken["products"], taken["ours"], strict=True)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=at_least_one, default=10)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    results = {name: measure(name, arguments.rounds) for name in ("paper_abc", "paper_d")}
    if arguments.json:
        print(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), **results}, indent=2))
        return
    for name, result in results.items():
        times = ", ".join(f"{which} {result[f'seconds_{which}']:.3f} s" for which in ("plain", "ours", "products"))
        print(
            f"{name}: {times}; {result['ratio_eager']:.1f}x the plain loop, {result['share_of_limit']:.0%} of the limit"
        )


if __name__ == "__main__":
    main()

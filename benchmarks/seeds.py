"""Several seeds trained as one program against the same seeds one after the other.

    python -m benchmarks.seeds [--preset laptop_ic_3] [--seeds 8] [--rounds 10] [--device auto] [--json]

In turns within one run: one step of every seed by ``retrieval_interp.training_step.TrainingStep``, and one step of all
of them by ``retrieval_interp.sweep.many_seeds.ManySeeds``, both compiled. ``ratio`` is the first by the second;
medians.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import torch

from retrieval_interp.model import build
from retrieval_interp.presets import preset
from retrieval_interp.provenance import versions
from retrieval_interp.sweep.many_seeds import ManySeeds
from retrieval_interp.training_step import Batches, TrainingStep, choose_device, learning_rate

FEW_BATCHES = 64  # in the training set, so that drawing it takes no time


def measure(name: str, n_seeds: int, rounds: int, device: torch.device) -> dict[str, float | str]:
    """Seconds of both, and their ratio."""
    chosen = preset(name)
    chosen = replace(chosen, recipe=replace(chosen.recipe, training_examples=FEW_BATCHES * chosen.recipe.batch))
    model = build(chosen.task, chosen.config, 0).to(device, print_details=False)
    alone, together = TrainingStep(model, chosen.task, chosen.recipe), ManySeeds(chosen, range(n_seeds), device)
    batches = Batches(chosen.task, chosen.recipe, 0, device)
    for each in (alone, together):
        each.compile()

    def one_after_the_other(step: int) -> None:
        for _ in range(n_seeds):
            alone(batches[step], learning_rate(chosen.recipe, step)).cpu()

    def as_one(step: int) -> None:
        together.step(step).cpu()

    taken: dict[str, list[float]] = {"alone": [], "together": []}
    for turn in range(rounds + 2):
        for which, step in (("alone", one_after_the_other), ("together", as_one)):
            duration = seconds(step, turn)
            if turn >= 2:  # the first turns warm up
                taken[which].append(duration)
        print(f"\r{name}: round {max(0, turn - 1)} of {rounds}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return {
        **{"preset": name, "seeds": n_seeds, "device": str(device), "threads": torch.get_num_threads()},
        **{f"seconds_{which}": statistics.median(durations) for which, durations in taken.items()},
        "ratio": statistics.median(a / t for a, t in zip(taken["alone"], taken["together"], strict=True)),
    }


def seconds(step: Callable[[int], None], number: int) -> float:
    started = time.perf_counter()
    step(number)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop_ic_3")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    result = measure(arguments.preset, arguments.seeds, arguments.rounds, device)
    if arguments.json:
        print(json.dumps({**versions(), **result}, indent=2))
        return
    print(
        f"{result['preset']}, {result['seeds']} seeds on {result['device']}: one after the other "
        f"{result['seconds_alone']:.3f} s, together {result['seconds_together']:.3f} s; {result['ratio']:.2f}x"
    )


if __name__ == "__main__":
    main()

"""Compare our evaluation of circuits with running each of them alone, with hooks, on the same examples.

    python -m benchmarks.ablation [--model transformer_a] [--examples 1024] [--json]

For ``validate`` on the model's circuit and for ``discover``:

    ratio       the time of the loop over ours, for the same circuits on the same examples
    seconds     ours
    circuits    how many were run

Times are processor time, so that other work beside this one counts little. The loop is timed on a random sample of the
circuits, and its time is scaled to their number.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from unittest.mock import patch

import torch

from benchmarks.arguments import at_least, loadable
from circuits import Circuit, Task, discover, evaluate, run_ablated, validate
from circuits.averages import averages
from circuits.losses import sequential_test
from circuits.mechanisms import Resample
from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp import load
from retrieval_interp.models.provenance import versions

SAMPLED, TIMED = 24, 128  # the numbers of circuits and examples on which the loop is timed


def recorded(work: Callable[[], object]) -> tuple[float, list[tuple[Circuit, int]]]:
    """Return the seconds that some work takes, and every circuit that it runs with its number of examples, by batch.

    Circuits with resampled heads are left out: the loop would need other examples.
    """
    each_loss, ran = sequential_test.each_loss, []

    def recording(model, task, examples, circuits, *more):  # type: ignore[no-untyped-def]
        for index, part, losses in each_loss(model, task, examples, circuits, *more):
            ran.append((circuits[index], len(losses)))
            yield index, part, losses

    with patch.object(sequential_test, "each_loss", recording):
        started = time.process_time()
        work()
        return time.process_time() - started, ran


@torch.no_grad()
def loop(model: HookedTransformer, task: Task, ran: list[tuple[Circuit, int]]) -> tuple[float, float]:
    """Return the loop's seconds for a circuit and example, and the largest difference of its mean losses from ours."""
    examples, furthest, taken = task.examples(TIMED, seed=0), 0.0, 0.0
    known = [one for one in ran if Resample() not in one[0].heads.values()]
    sample, means = random.Random(0).sample(known, min(SAMPLED, len(known))), averages(model, task)
    for circuit, _ in sample:
        started = time.process_time()
        alone = task.losses(run_ablated(model, circuit, examples, means), examples).mean()
        taken += time.process_time() - started
        ours = evaluate(model, task, examples, [circuit], averages=means).mean()
        furthest = max(furthest, (ours - alone).abs().item())
    return taken / len(sample) / TIMED, furthest


def compared(model: HookedTransformer, task: Task, work: Callable[[], object]) -> dict[str, float]:
    """Compare some work with the loop over the same circuits and examples."""
    seconds, ran = recorded(work)
    each, furthest = loop(model, task, ran)
    ratio = each * sum(n for _, n in ran) / seconds
    circuits = len({circuit for circuit, _ in ran})
    return {"ratio": ratio, "seconds": seconds, "circuits": circuits, "furthest_loss": furthest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=loadable, default="transformer_a")
    parser.add_argument("--examples", type=at_least(2), default=1024)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    model, task, circuit = load(arguments.model)
    works = {
        "validation": lambda: validate(model, task, circuit, n_examples=arguments.examples),
        "discovery": lambda: discover(model, task),
    }
    result = {name: compared(model, task, work) for name, work in works.items()}
    if arguments.json:
        print(json.dumps({**result, **versions(), "threads": torch.get_num_threads()}, indent=2))
    else:
        for name, values in result.items():
            print(name, ", ".join(f"{key} {value:.3g}" for key, value in values.items()))


if __name__ == "__main__":
    main()

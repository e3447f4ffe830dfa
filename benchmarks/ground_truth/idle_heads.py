"""What a head without a part in the circuit costs, by the way in which it is ablated.

    python -m benchmarks.ground_truth.idle_heads [--seeds 6] [--level trained ...] [--json]

For every head of a model: the model's own loss, and the loss with this head alone ablated, all others intact.

    mean output    what the head writes at a position is its mean over examples there
    mean pattern   its attention pattern is its mean over examples
    uniform        its attention is uniform
    identity       every position attends to itself

A head whose mean output costs nothing tells the model nothing about the example that it needs and has from nowhere
else. The level *trained* trains heads without paths to be so, all of them at once. Whatever another ablation of such a
head costs does not come from what it says about the example.
"""

import argparse
import json
import sys
from typing import Any

import torch

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.interchange_trained import check_weights
from benchmarks.ground_truth.levels import LEVELS, named
from benchmarks.ground_truth.truth import GroundTruth
from circuits import Circuit, Examples, Head, evaluate, mean_patterns
from retrieval_interp.models.provenance import versions

N_EXAMPLES, SEED = 512, 3
ABLATIONS = ("mean output", "mean pattern", "uniform", "identity")


def costs(truth: GroundTruth) -> dict[Head, dict[str, float]]:
    """Return for every head the loss with it ablated, by the ablation, and the model's own loss as ``own``."""
    examples, heads = truth.problem.examples(N_EXAMPLES, SEED), truth.all_heads
    means = mean_patterns(truth.model, truth.problem, SEED)
    changed = [Circuit({head: one}) for head in heads for one in (means[head], "uniform", "identity")]
    own, *others = evaluate(truth.model, truth.problem, examples, [Circuit(), *changed]).mean(dim=(1, 2)).tolist()
    found = {}
    for place, head in enumerate(heads):
        losses = (own, with_mean_output(truth, examples, head), *others[3 * place : 3 * place + 3])
        found[head] = dict(zip(("own", *ABLATIONS), losses, strict=True))
    return found


def with_mean_output(truth: GroundTruth, examples: Examples, head: Head) -> float:
    """Return the loss with what a head writes at every position averaged over examples."""

    def averaged(z: torch.Tensor, hook: Any) -> torch.Tensor:
        z = z.clone()
        z[:, :, head.index] = z[:, :, head.index].mean(dim=0)
        return z

    with torch.no_grad(), truth.model.hooks(fwd_hooks=[(f"blocks.{head.layer}.attn.hook_z", averaged)]):
        return float(truth.problem.losses(truth.model(examples.inputs), examples).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=6)
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=["trained"])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    check_weights(arguments.level, arguments.seeds, parser)
    rows = []
    for level in arguments.level:
        for seed in range(arguments.seeds):
            truth = LEVELS[level](seed)
            for head, losses in costs(truth).items():
                idle = head not in truth.true_heads | truth.open_heads
                rows.append({"level": level, "seed": seed, "head": str(head), "idle": idle, **losses})
            print(f"\r{level}: {seed + 1} of {arguments.seeds}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    highest = {name: max(row[name] - row["own"] for row in rows if row["idle"]) for name in ABLATIONS}
    if arguments.json:
        command = (
            f"python -m benchmarks.ground_truth.idle_heads --seeds {arguments.seeds}{named(arguments.level)} --json"
        )
        document = {"command": command, **versions(), "highest_cost_of_an_idle_head": highest, "heads": rows}
        print(json.dumps(document, indent=2))
        return
    for row in rows:
        told = ", ".join(f"{name} {row[name]:.4f}" for name in ("own", *ABLATIONS))
        print(f"{row['level']} {row['seed']} {row['head']} {'idle' if row['idle'] else 'needed'}: {told}")


if __name__ == "__main__":
    main()

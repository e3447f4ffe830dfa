"""Test discovery on models whose circuit is known, from easy to hard.

    python -m benchmarks.ground_truth [--seeds 6] [--level NAME ...] [--json]

What each level adds to compiled circuits is written in ``levels.py``. Every model is checked to carry its circuit: its
loss is low, also with the planted patterns in the planted heads, and high without any path that is needed. Precision is
the share of the found paths that are needed, recall the share of the needed paths that were found; of a path and its
backup, one is needed. For heads, those with a path, or with a row to a fixed position, count. Slots is the share of
instances on which a found path holds where the planted one does; it decides nothing. Strength is how much noise (a
share of a weight's size) or overlap a model has: as much as it bears, so that the models of these levels pass the check
by their making. Which mechanism a head without a path gets is not scored.

Success, written down before the first run: all models carry their circuits, and on every level the precision and the
recall of paths are at least 0.95. The exit code is 0 if so, and 1 if not.
"""

import argparse
import json
import sys
import time
from typing import Any

import pandas as pd

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.levels import COMPILED, LEVELS, N_TRAINED
from benchmarks.ground_truth.truth import (
    THRESHOLD,
    GroundTruth,
    carried,
    paths_found,
    precision_and_recall,
    slots_right,
)
from circuits import OneHot, discover
from circuits.errors import Unsolved
from retrieval_interp.models.provenance import versions

GOAL = 0.95
N_EXAMPLES = 256
AVERAGED = ["precision", "recall", "slots", "head_precision", "head_recall", "seconds", "sequences"]


def discovered(truth: GroundTruth) -> dict[str, Any]:
    """Discover the circuit of a model, and compare it with the true one."""
    began = time.perf_counter()
    try:
        found = discover(truth.model, truth.task, n_examples=N_EXAMPLES, threshold=THRESHOLD)
    except Unsolved as error:
        cost = {"seconds": round(time.perf_counter() - began, 2), "sequences": N_EXAMPLES}
        return {**dict.fromkeys(AVERAGED, 0.0), **cost, "loss": None, "wrong": [str(error)], "missed": []}
    seconds = time.perf_counter() - began
    paths = paths_found(found.circuit, truth)
    precision, recall = precision_and_recall(paths, truth.needed)
    heads = {head for head, own in found.circuit.heads.items() if own.paths or isinstance(own, OneHot)}
    heads |= {path.head for path in paths}
    heads -= truth.open_heads
    right = heads & truth.true_heads
    planted = {path for alternatives in truth.needed for path in alternatives}
    return {
        "precision": precision,
        "recall": recall,
        "slots": slots_right(found.circuit, paths, truth),
        "head_precision": len(right) / max(len(heads), 1),
        "head_recall": len(right) / max(len(truth.true_heads), 1),
        "seconds": round(seconds, 2),
        "sequences": found.n_evaluations,
        "loss": found.combined.loss.mean,
        "wrong": [*map(str, sorted(paths - planted))],
        "missed": [*map(str, sorted(path for one in truth.needed if not one & paths for path in one))],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=6)
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=[*COMPILED], help="by default all compiled ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    if "trained" in arguments.level and arguments.seeds > N_TRAINED:
        parser.error(f"level trained: weights of {N_TRAINED} seeds are stored; expected at most {N_TRAINED} seeds")
    rows = []
    for name in arguments.level:
        for seed in range(arguments.seeds):
            truth = LEVELS[name](seed)
            check = carried(truth)
            carries = {"carried": check.ok, "unablated": check.loss, "planted": check.planted, "without": check.least}
            own = {"level": name, "seed": seed, "needed": len(truth.needed), "strength": truth.strength}
            rows.append({**own, **carries, **discovered(truth)})
            print(f"\r{name}: {seed + 1} of {arguments.seeds}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    levels = pd.DataFrame(rows).groupby("level", sort=False)[AVERAGED].mean()
    levels["passed"] = levels[["precision", "recall"]].min(axis=1) >= GOAL
    passed = bool(all(row["carried"] for row in rows) and levels["passed"].all())
    if arguments.json:
        command = (
            f"python -m benchmarks.ground_truth --seeds {arguments.seeds} --level {' '.join(arguments.level)} --json"
        )
        document = {"command": command, **versions(), "passed": passed, "levels": levels.to_dict("index")}
        print(json.dumps({**document, "models": rows}))
        return not passed
    print(levels.round(2).to_string())
    for row in (row for row in rows if row["wrong"] or row["missed"]):
        print(f"{row['level']}, seed {row['seed']}: wrong {row['wrong']}, missed {row['missed']}")
    print("passed" if passed else "not passed")
    return not passed


if __name__ == "__main__":
    sys.exit(main())

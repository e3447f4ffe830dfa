"""Hold discovery against what else finds circuits: which heads matter, on the models of ``benchmarks/ground_truth``.

    python -m benchmarks.peers [--seeds 12] [--level NAME ...] [--json]

Every method gives each head a number (``head_scores.py``). The true heads are those with a path that the task needs; a
head that another one backs up counts neither as true nor as false. Per level, the area under the ROC curve and the
average precision are averaged over the models, with the CPR and the CMD of MIB (``faithfulness.py``), measured on fresh
examples. Every method gets 32 examples for what it measures. Discovery draws as many again for averages and for the
final losses, and takes four times as many if 32 leave open whether the model solves its task; on a model that does not,
all heads get 0. The peers take the next example as an example's counterfactual, and measure one metric (``metric.py``).
Seconds are CPU time. Sequences are forward passes times examples; a backward pass counts as another two. The two runs
that scale the metric are not counted. Discovery and attention are told the positions of roles, the other peers are not.
ACDC ranks by its runs at five thresholds; *ACDC once* is its run at one of them. Chance is drawn anew for each model.

Success, written down before the first run: on every level, discovery has at least the average precision and the area of
every peer, in fewer sequences than ACDC (at five thresholds; *ACDC once*, which a reviewer asked for, came later). The
exit code is 0 if so, and 1 if not. CPR and CMD do not count.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from sklearn.metrics import average_precision_score, roc_auc_score

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.interchange_trained import check_weights
from benchmarks.ground_truth.levels import COMPILED, LEVELS, named
from benchmarks.ground_truth.truth import THRESHOLD, GroundTruth
from benchmarks.peers.acdc import survival
from benchmarks.peers.attribution import eap, eap_ig
from benchmarks.peers.faithfulness import cmd, cpr, faithfulness
from benchmarks.peers.graph import Edges
from benchmarks.peers.head_scores import Scores, by_attention, by_chance, by_discovery, by_edges
from benchmarks.peers.metric import Measured, measured
from circuits import discover
from circuits.errors import Unsolved
from retrieval_interp.models.provenance import versions

N_EXAMPLES, SEED = 32, 7
MOST_EXAMPLES = 2048  # of discovery
ROUNDING = 1e-9  # of averages
FRESH = 8  # the seed of the examples for the curves of faithfulness
THRESHOLDS = (0.3, 0.1, 0.03, 0.01, 0.003)  # of ACDC: shares of what the model gets right
ONCE = 0.01  # chosen after a look at all five on three seeds
Found = tuple[Scores, int]  # and the number of sequences
Method = Callable[[GroundTruth, int], Found]  # of a model, with its seed


def _of_edges(method: Callable[[Measured], Edges]) -> Method:
    def found(truth: GroundTruth, seed: int) -> Found:
        on = measured(truth, N_EXAMPLES, SEED)
        edges = method(on)
        return by_edges(edges, on.graph), (on.graph.n_forward + 2 * on.graph.n_backward) * N_EXAMPLES

    return found


def _discovery(truth: GroundTruth, n_examples: int = N_EXAMPLES) -> Found:
    try:
        found = discover(truth.model, truth.problem, n_examples=n_examples, threshold=THRESHOLD, seed=SEED)
    except Unsolved:  # too few examples to say that the model solves its task
        if n_examples >= MOST_EXAMPLES:  # it refuses the model, and ranks nothing
            return dict.fromkeys(truth.all_heads, 0.0), n_examples
        scores, sequences = _discovery(truth, 4 * n_examples)
        return scores, n_examples + sequences
    return by_discovery(found), found.n_evaluations + found.n_readings


METHODS: dict[str, Method] = {
    "discovery": lambda truth, seed: _discovery(truth),
    "ACDC": _of_edges(lambda on: survival(on, THRESHOLDS)),
    "ACDC once": _of_edges(lambda on: survival(on, [ONCE])),
    "EAP": _of_edges(eap),
    "EAP-IG": _of_edges(eap_ig),
    "attention": lambda truth, seed: (by_attention(truth, N_EXAMPLES, SEED), N_EXAMPLES),
    "chance": lambda truth, seed: (by_chance(truth, seed), 0),
}
FIGURES = ("area", "precision", "CPR", "CMD", "sequences", "seconds")


def held_against(truth: GroundTruth, seed: int, method: Method) -> dict[str, Any]:
    """Return a method's figures, every head's number, and the faithfulness of the first 0, 1, 2, ... heads."""
    began = time.process_time()
    exact, sequences = method(truth, seed)
    seconds = time.process_time() - began
    scores = {head: float(f"{score:.6g}") for head, score in exact.items()}  # as they are stored
    heads = [head for head in truth.all_heads if head not in truth.open_heads]
    true, score = [head in truth.true_heads for head in heads], [scores[head] for head in heads]
    curve = faithfulness(measured(truth, N_EXAMPLES, FRESH), scores)
    return {
        "area": float(roc_auc_score(true, score)),
        "precision": float(average_precision_score(true, score)),
        "CPR": cpr(curve),
        "CMD": cmd(curve),
        "sequences": sequences,
        "seconds": round(seconds, 3),
        "scores": {str(head): scores[head] for head in heads},
        "faithfulness": [round(value, 4) for value in curve],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=12)
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=[*COMPILED], help="by default all compiled ones")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    check_weights(arguments.level, arguments.seeds, parser)
    rows: list[dict[str, Any]] = []
    for level in arguments.level:
        for seed in range(arguments.seeds):
            truth = LEVELS[level](seed)
            true = [*map(str, sorted(truth.true_heads))]
            for name, method in METHODS.items():
                found = held_against(truth, seed, method)
                rows.append({"level": level, "seed": seed, "true": true, "method": name, **found})
            print(f"\r{level}: {seed + 1} of {arguments.seeds}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    table = {level: {name: _mean(rows, level, name) for name in METHODS} for level in arguments.level}
    ahead = {level: _ahead(of_level) for level, of_level in table.items()}
    if arguments.json:
        command = f"python -m benchmarks.peers --seeds {arguments.seeds}{named(arguments.level)} --json"
        print(json.dumps({"command": command, **versions(), "ahead": ahead, "levels": table, "models": rows}))
        return not all(ahead.values())
    for level, of_level in table.items():
        print(level, "(ahead)" if ahead[level] else "(behind)")
        for name, own in of_level.items():
            print(f"  {name:10}", *(f"{key} {own[key]:.2f}" for key in FIGURES), sep="  ")
    return not all(ahead.values())


def _mean(rows: list[dict[str, Any]], level: str, name: str) -> dict[str, float]:
    own = [row for row in rows if (row["level"], row["method"]) == (level, name)]
    return {key: sum(row[key] for row in own) / len(own) for key in FIGURES}


def _ahead(table: dict[str, dict[str, float]]) -> bool:
    ours, others = table["discovery"], [own for name, own in table.items() if name != "discovery"]
    best = all(ours[key] >= own[key] - ROUNDING for own in others for key in ("area", "precision"))
    return best and ours["sequences"] < table["ACDC"]["sequences"]


if __name__ == "__main__":
    sys.exit(main())

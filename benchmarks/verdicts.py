"""How often is the verdict wrong? True circuits of models with a planted circuit, and circuits one edit away.

    python -m benchmarks.verdicts [--seeds 10] [--level NAME ...] [--json]

A true circuit has the planted mechanisms of the planted heads; all other heads are idle. Each edit is drawn at random:

    dropped          a path is gone, of those that carry part of the answer
    guide dropped    a path is gone that only tells a head above where to look (K-composition)
    retargeted       a path leads to another role that does not hold the same symbols
    moved            a path is in another head
    added            a head that is not idle has one more path
    idle             a head that attends by position is idle: one that joins pairs, or fetches what is left
    patterned        an idle head attends to the position before
    exchanged        two conditions of paths are exchanged (slots)
    another's        the circuit of another model of the same level and task

An edit is left out where there is nothing to edit, or where the edited circuit is the true one. Success, written down
before the first run: at least 95% of the true circuits hold, and at most 5% of the circuits of each edit. The exit code
is 0 if so, and 1 if not. Statements are tested in turn until one does not hold; rates have Wilson intervals of 95%.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

import pandas as pd

from benchmarks.arguments import at_least_one
from benchmarks.ground_truth.levels import LEVELS, N_TRAINED
from benchmarks.ground_truth.truth import GroundTruth
from circuits import AttentionPath, Circuit, Head, OneHot, evaluate
from circuits.checks.agreement import agreement, solves
from circuits.checks.carries import carries
from circuits.checks.completeness import complete, completeness
from circuits.checks.experiment import Experiment
from circuits.checks.faithfulness import faithfulness
from circuits.checks.minimality import minimal, minimality
from circuits.results import Verdict
from retrieval_interp.models.provenance import versions

HOLDING, WRONG = 0.95, 0.05  # the goals
LOW = 0.05


def true_circuit(truth: GroundTruth) -> Circuit:
    """Return the planted circuit with all other heads idle."""
    return Circuit({**dict.fromkeys(truth.all_heads, "idle"), **truth.circuit.heads})


def statements(experiment: Experiment) -> Iterator[Verdict]:
    """Yield the verdicts of all statements, the cheapest first."""
    yield solves(experiment)
    yield from agreement(experiment).verdicts
    yield from carries(experiment).verdicts
    yield from faithfulness(experiment).verdicts
    yield minimal(experiment, minimality(experiment))
    yield complete(experiment, completeness(experiment))


def edits(truth: GroundTruth, others: list[Circuit], rng: random.Random) -> Iterator[tuple[str, Circuit]]:
    """Yield one circuit for each kind of edit that is possible."""
    true, roles = true_circuit(truth), truth.task.examples(2, 0).roles
    guides = _guides(truth)
    idle = [head for head, own in true.heads.items() if own.name == "idle"]
    paths = [path for path in true.paths if isinstance(true.heads[path.head], OneHot)]
    carrying = [path for path in paths if path not in guides]
    layout = truth.task.layout
    symbols = {role: pieces - layout.places for role, pieces in layout.start.items()}
    if carrying:
        yield "dropped", _dropped(true, rng.choice(carrying))
    if guides:
        yield "guide dropped", _dropped(true, rng.choice(guides))
    targets = [
        (path, role)
        for path in paths
        for role in roles.before(path.source)
        if symbols[role] != symbols[path.target] and (path.source, role) not in true.heads[path.head].paths
    ]
    if targets:
        yield "retargeted", true.retargeted(*rng.choice(targets))
    places = [(path, head) for path in paths for head in true.heads if head != path.head]
    places = [(path, head) for path, head in places if path.source not in dict(_rows(true, head))]
    if places:
        path, head = rng.choice(places)
        yield "moved", _added(_dropped(true, path), AttentionPath(head, path.source, path.target))
    more = [
        AttentionPath(head, source, target)
        for head in dict.fromkeys(path.head for path in paths)
        for source in roles.names
        if source not in dict(_rows(true, head))
        for target in roles.before(source)
    ]
    if more:
        yield "added", _added(true, rng.choice(more))
    positional = [*truth.positional, *{path.head for path in guides}]
    if positional:
        yield "idle", true.with_head(rng.choice(sorted(positional)), "idle")
    if idle:
        yield "patterned", true.with_head(rng.choice(idle), "previous")
    if exchanged := _exchanged(true, rng):
        yield "exchanged", exchanged
    fitting = [one for one in others if one.heads != true.heads]
    if fitting:
        yield "another's", rng.choice(fitting)


def _guides(truth: GroundTruth) -> list[AttentionPath]:
    """Return the planted paths that are not needed once all heads are replaced."""
    true = true_circuit(truth)
    paths = [path for path in true.paths if isinstance(true.heads[path.head], OneHot)]
    without = [true, *(true.without(path, "identity") for path in paths)]
    base, *losses = evaluate(truth.model, truth.task, truth.task.examples(64, 3), without).mean(dim=(1, 2)).tolist()
    return [path for path, loss in zip(paths, losses, strict=True) if loss < base + 0.01]


def _rows(circuit: Circuit, head: Head) -> tuple[tuple[str, str], ...]:
    own = circuit.heads[head]
    return own.rows if isinstance(own, OneHot) else ()


def _dropped(circuit: Circuit, path: AttentionPath) -> Circuit:
    """Return the circuit without a path; a head without any other is idle."""
    own = circuit.heads[path.head]
    assert isinstance(own, OneHot)
    rest = [row for row in own.rows if row != (path.source, path.target)]
    where = {row: condition for row, condition in own.where if row in rest}
    return circuit.with_head(path.head, OneHot(rest, own.elsewhere, where) if rest else "idle")


def _added(circuit: Circuit, path: AttentionPath) -> Circuit:
    """Return the circuit with one more path."""
    own = circuit.heads[path.head]
    if isinstance(own, OneHot):
        return circuit.with_head(path.head, own.with_row(path.source, path.target))
    return circuit.with_head(path.head, OneHot([(path.source, path.target)]))


def _exchanged(circuit: Circuit, rng: random.Random) -> Circuit | None:
    """Return the circuit with the conditions of two paths with the same ends exchanged."""
    conditions = [(head, *row) for head, own in circuit.heads.items() for row in own.where]
    pairs = [(one, two) for one in conditions for two in conditions if one[1] == two[1] and one[0] < two[0]]
    if not pairs:
        return None
    (one, ends, here), (other, _, there) = rng.choice(pairs)
    for head, condition in ((one, there), (other, here)):
        own = circuit.heads[head]
        assert isinstance(own, OneHot)
        circuit = circuit.with_head(head, OneHot(own.rows, own.elsewhere, dict(own.where) | {ends: condition}))
    return circuit


def judged(truth: GroundTruth, circuit: Circuit, n_examples: int) -> dict[str, Any]:
    """Test a circuit until a statement does not hold."""
    began = time.perf_counter()
    experiment = Experiment(truth.model, truth.task, circuit, n_examples=n_examples, threshold=LOW)
    verdict = next((one for one in statements(experiment) if one.decision != "holds"), None)
    seconds = round(time.perf_counter() - began, 2)
    cost = {"seconds": seconds, "sequences": experiment.test.n_evaluations}
    if verdict is None:
        return {"holds": True, "decision": "holds", "by": "", "sentence": "", **cost}
    return {"holds": False, "decision": verdict.decision, "by": verdict.name, "sentence": verdict.sentence, **cost}


def interval(k: int, n: int) -> tuple[float, float]:
    """Return Wilson's interval of 95% for a rate of ``k`` in ``n``."""
    z, share = 1.96, k / n
    middle, spread = share + z * z / (2 * n), z * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return max(0.0, (middle - spread) / (1 + z * z / n)), min(1.0, (middle + spread) / (1 + z * z / n))


def table(rows: pd.DataFrame, by: str) -> pd.DataFrame:
    """Return how many circuits hold, with the interval of the rate."""
    made = rows.groupby(by, sort=False)["holds"].agg(["sum", "count"]).rename(columns={"sum": "hold", "count": "of"})
    made["rate"] = made["hold"] / made["of"]
    made[["low", "high"]] = [interval(int(k), int(n)) for k, n in zip(made["hold"], made["of"], strict=True)]
    return made


def measured(levels: list[str], seeds: int, n_examples: int) -> pd.DataFrame:
    """Judge the true circuit of every model, and one circuit for each edit."""
    rows = []
    for level in levels:
        truths = [LEVELS[level](seed) for seed in range(min(seeds, N_TRAINED if level == "trained" else seeds))]
        for seed, truth in enumerate(truths):
            rng, size = random.Random(f"{level} {seed}"), (truth.model.cfg.n_layers, truth.model.cfg.n_heads)
            others = [
                Circuit({**dict.fromkeys(truth.all_heads, "idle"), **one.circuit.heads})
                for other, one in enumerate(truths)
                if other != seed and one.task == truth.task and {*one.circuit.heads} <= {*truth.all_heads}
            ]
            for kind, circuit in [("true", true_circuit(truth)), *edits(truth, others, rng)]:
                circuit.check(truth.task.roles, *size)
                rows.append({"level": level, "seed": seed, "kind": kind, **judged(truth, circuit, n_examples)})
            print(f"\r{level}: {seed + 1} of {len(truths)}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return pd.DataFrame(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=at_least_one, default=10)
    parser.add_argument("--examples", type=at_least_one, default=1024)
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=[*LEVELS])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = measured(arguments.level, arguments.seeds, arguments.examples)
    true, edited = rows[rows["kind"] == "true"], rows[rows["kind"] != "true"]
    by_level, by_edit = table(true, "level"), table(edited, "kind")
    passed = bool(true["holds"].mean() >= HOLDING and (by_edit["rate"] <= WRONG).all())
    wrong = rows[rows["holds"] != (rows["kind"] == "true")]
    command = f"python -m benchmarks.verdicts --seeds {arguments.seeds} --level {' '.join(arguments.level)} --json"
    if arguments.json:
        tables = {"true": by_level.to_dict("index"), "edits": by_edit.to_dict("index")}
        each = {"wrong": wrong.to_dict("records"), "circuits": rows.drop(columns="sentence").to_dict("records")}
        document = {"command": command, **versions(), "passed": passed, **tables, **each}
        print(json.dumps(document))
        return not passed
    print("True circuits that hold", by_level.round(3).to_string(), sep="\n")
    print("Circuits one edit away that hold", by_edit.round(3).to_string(), sep="\n")
    print(wrong[["level", "seed", "kind", "by", "decision"]].to_string())
    print("passed" if passed else "not passed")
    return not passed


if __name__ == "__main__":
    sys.exit(main())

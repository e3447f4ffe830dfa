"""What the circuits of SmolLM2 keep on fresh prompts, and what controls keep: ``studies/smollm2/run.py [TASK ...]``.

The circuits are those of ``data/smollm2``, found by the commands in README.md. Prompts are of seeds that discovery
and validation do not have, nor their averages; a seed's controls are measured on its first 128 prompts. ``table.csv``
has what is kept; ``scores.csv`` has every head in which a role gives another one more than half of its attention on
average, what the circuit says of it, and by how much the loss rises if its average pattern stands instead of its own.
"""

import random
import sys
from pathlib import Path

import pandas as pd

from circuits import Circuit, load_circuit
from circuits.averages import averages
from circuits.discovery.soft_paths import soft_paths
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Idle, Intact
from circuits.mechanisms.one_hot import OneHot
from circuits.mechanisms.soft import Soft
from retrieval_interp import data_folder, load
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models.machine import on_machine

N, SEEDS, RANDOM = 512, (101, 102, 103), 5
SCORES = {
    "ioi": {
        ("end", "IO"): "name mover",
        ("end", "S2"): "S-inhibition",
        ("S2", "S1"): "duplicate token",
        ("S2", "S1+1"): "induction",
        ("S1+1", "S1"): "previous token",
    },
    "induction": {
        ("end", "next"): "induction",
        ("end", "earlier"): "duplicate token",
        ("next", "earlier"): "previous token",
    },
}


def beside(mechanism, own):
    """Return what looks as a mechanism does, and elsewhere as a head does on average."""
    if isinstance(mechanism, Soft):
        return Soft(dict(mechanism.weights), own)
    return OneHot(mechanism.rows, own) if isinstance(mechanism, OneHot) else mechanism


def controls(circuit, means, seed):
    """Yield the name of a control and its circuit: no class of heads, or as many random heads in its place."""
    fixed = {head: one for head, one in circuit.heads.items() if not one.varies}
    intact = {head: one for head, one in circuit.heads.items() if one == Intact()}
    paths = {head: one for head, one in circuit.heads.items() if one.varies and one != Intact()}
    yield "the circuit", circuit
    yield "all heads at their average pattern", Circuit(means)
    idle = {head: Idle() for head in fixed}
    yield "its other heads idle (mean output) instead of their average pattern", Circuit({**circuit.heads, **idle})
    for name, some in (("intact heads", intact), ("heads with paths", paths)):
        if some:
            yield f"without its {len(some)} {name}", Circuit({**circuit.heads, **{head: means[head] for head in some}})
            for draw in range(RANDOM):
                others = random.Random(f"{seed} {draw}").sample(sorted(fixed), len(some))
                swapped = {head: beside(one, means[head]) for head, one in zip(others, some.values(), strict=True)}
                yield (
                    f"{len(some)} random heads instead of its {name}",
                    Circuit({**circuit.heads, **{head: means[head] for head in some}, **swapped}),
                )


def scores(name, model, circuit):
    """Yield the heads with a high score, what the circuit says of them, and the cost of their average pattern."""
    task = MetricTask.of(model, language_task(name, model.tokenizer), seed=SEEDS[0])
    means = averages(model, task, SEEDS[0], 256)
    examples = task.examples(128, SEEDS[0])
    test = SequentialTest(model, task, examples, 0.05, means)
    high = [
        (source, target, head, weight)
        for head, soft in soft_paths(model, examples).items()
        for (source, target), weight in soft.weights
        if weight > 0.5 and (source, target) in SCORES[name]
    ]
    for source, target, head, weight in sorted(high):
        own, fixed = test.measure([circuit.with_head(head, one) for one in (Intact(), means.patterns[head])])
        said = circuit.heads.get(head, Intact())
        yield {
            "task": name,
            "score": SCORES[name][source, target],
            "head": str(head),
            "attention": weight,
            "the circuit says": "average pattern" if not said.varies else str(said),
            "cost of its average pattern": fixed.mean - own.mean,
        }


def rows(name, model, circuit):
    for seed in SEEDS:
        task = MetricTask.of(model, language_task(name, model.tokenizer), seed=seed)
        means = averages(model, task, seed, 256)
        test = SequentialTest(model, task, task.examples(N, seed), 0.05, means)
        for control, one in controls(circuit, means.patterns, seed):
            n = N if control == "the circuit" else 128
            (loss,) = test.measure([one], n)
            (mine,) = test.measure([Circuit()], n)
            measures = {**loss.measures, "share": loss.measures["logit difference"] / mine.measures["logit difference"]}
            yield {"task": name, "seed": seed, "what": control, "n": n, **measures, "own top-1": mine.measures["top-1"]}
            print(name, seed, control, measures, flush=True)


def kept(file, name, found):
    """Write what was found of a task beside the rows of other tasks, and return them all."""
    path, new = Path(__file__).parent / file, pd.DataFrame(found)
    old = pd.read_csv(path) if path.exists() else new[:0]
    table = pd.concat([old[old["task"] != name], new])
    table.to_csv(path, index=False, float_format="%.4f")
    return table


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    for name in sys.argv[1:] or ("ioi", "induction"):
        circuit = load_circuit(data_folder() / "smollm2" / name / "circuit.yaml")
        table = kept("table.csv", name, rows(name, model, circuit))
        kept("scores.csv", name, scores(name, model, circuit))
    print(
        table.groupby(["task", "what"], sort=False)[["share", "KL", "top-1", "own top-1"]].agg(["mean", "min", "max"])
    )

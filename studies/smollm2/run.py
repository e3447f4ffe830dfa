"""What the circuits of SmolLM2 keep on fresh prompts, and what controls keep: ``studies/smollm2/run.py [TASK ...]``.

The circuits are those of ``data/smollm2``, found by the command in their files. Prompts are of seeds that discovery
and validation do not have; averages, for idle heads, are of the same seed.
"""

import random
import sys
from pathlib import Path

import pandas as pd

from circuits import Circuit, load_circuit
from circuits.averages import averages
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Intact
from retrieval_interp import data_folder, load
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models.machine import on_machine

N, SEEDS, RANDOM = 512, (101, 102, 103), 5


def controls(circuit, means):
    """Yield the name of a control and its circuit: no class of heads, or as many random heads in its place."""
    fixed = {head: one for head, one in circuit.heads.items() if not one.varies}
    intact = {head: one for head, one in circuit.heads.items() if one == Intact()}
    paths = {head: one for head, one in circuit.heads.items() if one.varies and one != Intact()}
    yield "the circuit", circuit
    yield "all heads at their average pattern", Circuit(means)
    for name, some in (("intact heads", intact), ("heads with paths", paths)):
        if some:
            yield f"without its {len(some)} {name}", Circuit({**circuit.heads, **{head: means[head] for head in some}})
            for seed in range(RANDOM):
                others = random.Random(seed).sample(sorted(fixed), len(some))
                swapped = dict(zip(others, some.values(), strict=True))
                yield (
                    f"{len(some)} random heads instead of its {name}",
                    Circuit({**circuit.heads, **{head: means[head] for head in some}, **swapped}),
                )


def rows(name, model):
    circuit = load_circuit(data_folder() / "smollm2" / name / "circuit.yaml")
    for seed in SEEDS:
        task = MetricTask.of(model, language_task(name, model.tokenizer), seed=seed)
        means = averages(model, task, seed, 256)
        test = SequentialTest(model, task, task.examples(N, seed), 0.05, means)
        (own,) = test.measure([Circuit()])
        for control, one in controls(circuit, means.patterns):
            n = N if control == "the circuit" else 128
            (loss,) = test.measure([one], n)
            (mine,) = test.measure([Circuit()], n)
            measures = {**loss.measures, "share": loss.measures["logit difference"] / mine.measures["logit difference"]}
            yield {"task": name, "seed": seed, "what": control, "n": n, **measures, "own top-1": own.measures["top-1"]}
            print(name, seed, control, measures, flush=True)


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    found = [row for name in sys.argv[1:] or ("ioi", "induction") for row in rows(name, model)]
    table = pd.DataFrame(found)
    table.to_csv(Path(__file__).parent / "table.csv", index=False, float_format="%.4f")
    print(
        table.groupby(["task", "what"], sort=False)[["share", "KL", "top-1", "own top-1"]].agg(["mean", "min", "max"])
    )

"""How well do gates rank heads? ``studies/smollm2/ranking.py`` ablates 40 of 270 heads one by one on IOI, beside them.

Gates between every head's own pattern and its average are learned as in ``discover``. The 20 heads with the most of
their own pattern, and every twelfth of the others, then get their average pattern: each alone in the unablated model,
and each while all heads but the 20 have theirs. ``ranking.csv`` has by how much the loss rises. Prompts are of seeds
that discovery does not have.
"""

from pathlib import Path

import pandas as pd

from circuits.averages import averages
from circuits.circuit import Circuit
from circuits.discovery.gates import learned_gates
from circuits.discovery.ranked import MOST, RISE, STEPS
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Intact
from retrieval_interp import load
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import language_task

FIRST, EVERY, SEED = 20, 12, 104


def ranking(model):
    task = MetricTask.of(model, language_task("ioi", model.tokenizer), seed=SEED)
    means = averages(model, task, SEED, 256)
    test = SequentialTest(model, task, task.examples(128, SEED + 1), 0.05, means)
    most = MOST * test.threshold * test.scale.width
    ways = [Circuit(means.patterns), Circuit()]
    gates = learned_gates(model, task, task.examples(256, SEED), ways, (most / RISE, most), STEPS)
    order = sorted(gates, key=lambda head: float(gates[head][:, 0].sum()))
    some = [*order[:FIRST], *order[FIRST::EVERY]][: 2 * FIRST]
    others = Circuit({head: means.patterns[head] for head in order[FIRST:]})
    fixed = [(head, means.patterns[head]) for head in some]
    alone = test.measure([Circuit({head: mean}) for head, mean in fixed])
    with_it = test.measure([others.with_head(head, Intact()) for head in some])
    without = test.measure([others.with_head(head, mean) for head, mean in fixed])
    for head, one, own, mean in zip(some, alone, with_it, without, strict=True):
        yield {
            "head": str(head),
            "rank": order.index(head) + 1,
            "share of its own pattern": gates[head][:, 1].mean().item(),
            "cost alone": one.mean,
            "cost beside the 20": mean.mean - own.mean,
        }


if __name__ == "__main__":
    table = pd.DataFrame(ranking(load("smollm2").model))
    table.to_csv(Path(__file__).parent / "ranking.csv", index=False, float_format="%.4f")
    costs = table[["cost alone", "cost beside the 20"]].abs()
    print(table.to_string(), "\n", costs.corrwith(-table["rank"], method="spearman").round(2))
    for name, cost in costs.items():
        missed = (cost[FIRST:] > cost[:FIRST].median()).sum()
        print(f"{name}: {missed} of the {FIRST} others cost more than the median of the first {FIRST}")

"""Which method finds the heads of IOI and induction in SmolLM2? ``peers.py [--prompts FILE] [TASK ...]``.

Every method gives each of 270 heads a score, from the same prompts: how much the loss rises without the head. The k
heads with the largest scores then stay, by sign (for CPR) or by size (for CMD, as MIB), all others are replaced, and
the logit difference is measured on other prompts, in two ways: the others write what they write on the counterfactual
prompt (as MIB patches), or they attend as on average (as ``discover`` replaces). Faithfulness is (d(k) - d(none)) /
(d(model) - d(none)); CPR is the area under it, CMD that between it and 1, over k as a share of all heads.
``peers.csv`` has the curves; ``scores/`` the scores as MIB reads them, and those that CircuitKit gave
(``circuitkit_scores.py``; ``--prompts`` writes what it reads). README.md has the rule.
"""

import json
import random
import resource
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from circuits.averages import averages
from circuits.circuit import Circuit, Head
from circuits.discovery.gates import learned_gates
from circuits.discovery.ranked import MOST, RISE, STEPS
from circuits.given import read_positions
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Resample
from circuits.model.layers import attention, kept, layers
from retrieval_interp import load, write_scores
from retrieval_interp.language_tasks.language_task import Metric
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.language_tasks.registry import language_task
from retrieval_interp.models.machine import on_machine

SEED, TESTED = 301, (302, 303, 304)  # of the prompts of the scores, and of those of the curves
N = 64  # prompts of either seed
TASKS = ("ioi", "induction")
KEPT = (0, 1, 3, 5, 8, 14, 20, 27, 40, 54, 81, 108, 135, 189, 270)
HERE, NAMED = Path(__file__).parent, ["task", "method", "replaced", "seed", "order"]


def heads_of(model):
    return [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]


def output_ablation(model, task, examples, means):
    """The loss when a head writes what it writes on the counterfactual prompt, minus the model's own."""
    test = SequentialTest(model, task, examples, 0.05, means)
    (own,) = test.measure([Circuit()], len(examples))
    heads = heads_of(model)
    losses = test.measure([Circuit({head: Resample()}) for head in heads], len(examples))
    return {head: loss.mean - own.mean for head, loss in zip(heads, losses, strict=True)}


def attribution(steps):
    """Attribution patching: the change of a head's output times the gradient of the loss by it.

    That is EAP (Syed et al. 2023) for nodes; with several steps EAP-IG-inputs (Hanna et al. 2024) for nodes.
    """

    def scores(model, task, examples, means):
        both = examples, examples.counterfactuals()
        own, other = (torch.stack([z for *_, z in attention(model, one)]) for one in both)
        opened, there = layers(model, examples), read_positions(task, examples)
        with torch.no_grad():
            start, end = layers(model, both[1]).embed(), opened.embed()
        total = torch.zeros(model.cfg.n_layers, model.cfg.n_heads)
        for step in range(steps):
            residual = (start + (step + 1) / steps * (end - start)).requires_grad_()
            seen = []
            with torch.enable_grad():
                for layer in range(model.cfg.n_layers):
                    residual = opened.block(layer, residual, None, {"z": kept(seen)})
                rows = opened.read(residual[there])
                outputs = rows.new_zeros(*residual.shape[:2], rows.shape[-1])
                outputs[there] = rows
                gradients = torch.autograd.grad(task.losses(outputs, examples).mean(), seen)
            for layer, gradient in enumerate(gradients):
                total[layer] += ((other[layer] - own[layer]) * gradient).sum(dim=(0, 1, 3)) / steps
        return {head: total[head].item() for head in heads_of(model)}

    return scores


def gates(model, task, examples, means):
    """How long a head keeps its own pattern, as gates in ``discover``, which are learned with another metric (KL)."""
    kl = MetricTask.of(model, task.task, Metric.kl, seed=SEED)
    test = SequentialTest(model, kl, examples, 0.05, means)
    most = MOST * test.threshold * test.scale.width
    learned = learned_gates(model, kl, examples, [Circuit(means.patterns), Circuit()], (most / RISE, most), STEPS)
    return {head: learned[head][:, 1].sum().item() for head in heads_of(model)}


def chance(model, task, examples, means):
    generator = random.Random(SEED)
    return {head: generator.random() for head in heads_of(model)}


METHODS = {
    "output ablation": output_ablation,
    "attribution patching": attribution(1),
    "EAP-IG nodes": attribution(5),
    "gates": gates,
    "random": chance,
}


def scored(model, name):
    """Yield every method with its scores, and what it took; what ``scores/`` has is not made again."""
    (HERE / "scores").mkdir(exist_ok=True)
    task = MetricTask.of(model, language_task(name, model.tokenizer), Metric.logit_difference, seed=SEED)
    for method, score in METHODS.items():
        path = HERE / "scores" / f"{name}_{method.replace(' ', '_')}.json"
        if path.exists():
            continue
        means, examples = averages(model, task, SEED, 256), task.examples(N, SEED)
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        scores = score(model, task, examples, means)
        took, memory = time.monotonic() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        write_scores(path, scores, model.cfg)
        took = {"seconds": round(took, 1), "more memory, GiB": round((memory - before) / 2**20, 2)}
        path.write_text(json.dumps(json.loads(path.read_text()) | took) + "\n")
    for path in sorted((HERE / "scores").glob(f"{name}_*.json")):
        document = json.loads(path.read_text())
        scores = {head: document["nodes"][f"a{head.layer}.h{head.index}"]["score"] for head in heads_of(model)}
        took = {what: document.get(what) for what in ("seconds", "more memory, GiB")}
        yield path.stem.removeprefix(f"{name}_").replace("_", " "), scores, took


def write_prompts(model, path):
    """Write the prompts of the scores as tokens, with the positions and the tokens of the answers."""
    written = {}
    for name in TASKS:
        examples = language_task(name, model.tokenizer).examples(N, SEED)
        own = {"clean": examples.inputs, "corrupted": examples.counterfactual, "end": examples.roles["end"]}
        own["answers"] = examples.targets[..., 0]  # [prompt, instance, right and wrong]
        written[name] = {what: one.tolist() for what, one in own.items()}
    Path(path).write_text(json.dumps(written))


def curves(model, name, known):
    """Yield, for each method, way of replacing and seed that is not known, a row for each number of heads that stay."""
    found = [one for one in scored(model, name) if not one[0].startswith("CircuitKit")]  # in the order of ours
    for seed in TESTED:
        task = MetricTask.of(model, language_task(name, model.tokenizer), Metric.logit_difference, seed=seed)
        means = averages(model, task, seed, 256)
        test = SequentialTest(model, task, task.examples(N, seed), 0.05, means)
        (own,) = test.measure([Circuit()], N)
        for way, replaced in (("resample", dict.fromkeys(heads_of(model), Resample())), ("pattern", means.patterns)):
            for (method, scores, took), by in product(found, ("size", "sign")):
                named = {"task": name, "method": method, "replaced": way, "seed": seed, "order": by}
                order = sorted(scores, key=lambda head: -abs(scores[head]) if by == "size" else -scores[head])
                if tuple(named.values()) in known or (by == "sign" and min(scores.values()) >= 0):  # the same order
                    continue
                stay = [Circuit({head: replaced[head] for head in order[k:]}) for k in KEPT]
                seen = [loss.measures["logit difference"] for loss in test.measure(stay, N)]
                none, whole = seen[0], own.measures["logit difference"]
                print(name, seed, way, method, np.round(seen, 2).tolist(), flush=True)
                yield [
                    {
                        **named,
                        "heads": k,
                        "logit difference": now,
                        "faithfulness": (now - none) / (whole - none),
                        **took,
                    }
                    for k, now in zip(KEPT, seen, strict=True)
                ]


def areas(table):
    """Return CPR (by sign, where scores have one) and CMD (by size) of every method, over seeds."""
    rows = []
    for key, one in table.groupby(["task", "replaced", "method", "seed"], sort=False):
        area = {by: [own["heads"] / own["heads"].max(), own["faithfulness"]] for by, own in one.groupby("order")}
        x, y = area.get("sign", area["size"])
        cpr = np.trapezoid(y, x)
        x, y = area["size"]
        rows.append((*key, cpr, np.trapezoid((1 - y).abs(), x), "sign" in area))
    made = pd.DataFrame(rows, columns=["task", "replaced", "method", "seed", "CPR", "CMD", "signed"])
    return made.groupby(["task", "replaced", "method", "signed"], sort=False)[["CPR", "CMD"]].agg(
        ["mean", "min", "max"]
    )


def agreement(name, ours, theirs):
    """Return whether two methods order all heads alike, and how far the scores are from proportional (largest: 1)."""
    read = [json.loads((HERE / "scores" / f"{name}_{one}.json").read_text())["nodes"] for one in (ours, theirs)]
    x, y = ({head: nodes[head]["score"] for head in read[1]} for nodes in read)  # CircuitKit's have heads alone
    orders = [sorted(scores, key=lambda head: -abs(scores[head])) for scores in (x, y)]
    ratio = sum(x[head] * y[head] for head in x) / sum(score**2 for score in y.values())
    return orders[0] == orders[1], max(abs(x[head] - ratio * y[head]) for head in x) / max(map(abs, x.values()))


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    path = HERE / "peers.csv"
    if sys.argv[1:2] == ["--prompts"]:
        write_prompts(model, sys.argv[2])
        raise SystemExit
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=NAMED)
    for name in sys.argv[1:] or TASKS:
        for rows in curves(model, name, {*table[NAMED].itertuples(index=False, name=None)}):
            table = pd.concat([table, pd.DataFrame(rows)]) if len(table) else pd.DataFrame(rows)
            table.to_csv(path, index=False, float_format="%.4f")
    print(areas(table).round(3).to_string())
    for name, pair in product(TASKS, (("attribution_patching", "EAP_nodes"), ("EAP-IG_nodes", "EAP-IG_nodes"))):
        print(name, *pair, agreement(name, pair[0], f"CircuitKit_{pair[1]}"))

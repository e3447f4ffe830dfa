"""Which circuit of SmolLM2 continues a list that is repeated, and which heads does it read?

``python -m studies.ladder.found``. A circuit is searched and validated on the list of ``heads.py`` (``circuit.yaml``),
and so is that of ``data/smollm2/induction``, which was found on random tokens. ``found.csv`` has both verdicts, what
both keep on prompts of other seeds, and controls; ``composition.csv`` has what the heads that look at the answer read,
by path patching. README.md has the rule and what was found.
"""

import random
from pathlib import Path

import pandas as pd

from circuits import Circuit, OneHot, discover, load_circuit, path_patching, save_circuit, validate
from circuits.attention import role_attention
from circuits.averages import averages
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Intact
from retrieval_interp import load
from retrieval_interp.language_tasks.language_task import END, Metric
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.models.machine import on_machine
from studies.ladder.heads import INDUCTION, RepeatedList

HERE = Path(__file__).parent
N, SEEDS, DRAWS = 512, (101, 102, 103), 5
PATCHED = 10  # heads, as the induction circuit has


def kept(model, circuit, seed):
    """Yield what a circuit keeps on fresh prompts, and what as many random heads keep in the place of its own."""
    task = MetricTask.of(model, RepeatedList(model.tokenizer), Metric.kl, seed)
    means = averages(model, task, seed, 256)
    test = SequentialTest(model, task, task.examples(N, seed), 0.05, means)
    looking = [*circuit.looking]
    others = sorted({*means.patterns} - {*looking})
    draws = [random.Random(k).sample(others, len(looking)) for k in range(DRAWS)]
    controls = {f"random {k}": Circuit(means.patterns | dict.fromkeys(some, Intact())) for k, some in enumerate(draws)}
    own = test.measure([Circuit()], N)[0].measures
    for what, one in {"the circuit": circuit, "no head": Circuit(means.patterns), **controls}.items():
        measures = test.measure([one], N)[0].measures
        share = measures["logit difference"] / own["logit difference"]
        yield {"what": what, "seed": seed, "share": share, **measures, "the model's top-1": own["top-1"]}


def verdict(report):
    """Return what ``validate`` says of each statement, and how far the answers are under each ablation."""
    losses = {"replaced": report.combined} | report.faithfulness.ablations
    said = {one.name: report.outcome(one) for one in report.statements}
    return {"decision": report.decision, **said} | {f"nats, {kind}": one.loss.mean for kind, one in losses.items()}


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    task = MetricTask.of(model, RepeatedList(model.tokenizer), Metric.kl)
    found = discover(model, task, n_examples=N)
    rows, circuits = [], {"found on random tokens": load_circuit(INDUCTION)}
    print(found, flush=True)
    if found.circuit is not None:
        circuits["found on the list"] = found.circuit
        save_circuit(found.circuit, HERE / "circuit.yaml")
    for name, circuit in circuits.items():
        report = validate(model, task, circuit, n_examples=N)
        rows.append({"circuit": name, "what": "validate", "looking": len([*circuit.looking]), **verdict(report)})
        print(rows[-1], flush=True)
        rows += [{"circuit": name, **row} for seed in SEEDS for row in kept(model, circuit, seed)]
        pd.DataFrame(rows).to_csv(HERE / "found.csv", index=False, float_format="%.3f")
    seen = role_attention(model, task.examples(N, 1))[..., task.roles.index(END), task.roles.index("next")]
    most = sorted(averages(model, task, 0, 2).patterns, key=lambda head: -seen[head])[:PATCHED]
    composed = path_patching(model, task, Circuit(dict.fromkeys(most, OneHot({END: "next"}))))
    print(composed, flush=True)
    composed.table().to_csv(HERE / "composition.csv", index=False, float_format="%.3f")

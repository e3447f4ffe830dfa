"""Which circuit of SmolLM2 continues a list that is repeated, and which heads does it read?

``python -m studies.ladder.found``. A circuit is searched and validated on the list of ``heads.py`` (``circuit.yaml``),
and so is that of ``data/smollm2/induction``, found on random tokens, with the list's own averages. ``found.csv`` has
what both keep on prompts of other seeds, and controls; ``composition.csv`` has what the heads that look at the answer
read, by path patching; ``verdicts.csv`` has both verdicts. What is there already stays. README.md has the rule and
what was found.
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
from studies.smollm2.judged import verdict
from studies.smollm2.run import beside

HERE = Path(__file__).parent
N, SEEDS, DRAWS = 512, (101, 102, 103), 5
CONTROLLED = 128  # of these prompts, for controls
PATCHED = 2  # heads: of ten, path patching was not done in ten minutes of a core
FOUND, VERDICTS = HERE / "circuit.yaml", HERE / "verdicts.csv"
SCORES = HERE.parent / "smollm2/scores.csv"
UPPER = 16  # the first of the upper layers


def kept(model, circuits, seed):
    """Yield what circuits keep on fresh prompts, and what as many random heads as the last has keep in their place."""
    task = MetricTask.of(model, RepeatedList(model.tokenizer), Metric.kl, seed)
    means = averages(model, task, seed, 256)
    test = SequentialTest(model, task, task.examples(N, seed), 0.05, means)
    looking = [*circuits[-1].looking]
    others = sorted({*means.patterns} - {*looking})
    draws = [random.Random(k).sample(others, len(looking)) for k in range(DRAWS)]
    controls = [Circuit(means.patterns), *(Circuit(means.patterns | dict.fromkeys(some, Intact())) for some in draws)]
    for n, some in ((N, circuits), (CONTROLLED, controls)):
        (own,) = test.measure([Circuit()], n)
        for one in some:
            (loss,) = test.measure([one], n)
            share = loss.measures["logit difference"] / own.measures["logit difference"]
            yield {"seed": seed, "n": n, "share": share, **loss.measures, "the model's top-1": own.measures["top-1"]}


def induction_among(circuit):
    """Count the circuit's looking heads in the upper layers, and those of them that are induction heads by the rule."""
    scores = pd.read_csv(SCORES).query("task == 'induction' and score == 'induction'")
    known = {*scores["head"], *map(str, load_circuit(INDUCTION).looking)}  # the table has weights above 0.5 alone
    upper = [str(head) for head in circuit.looking if head.layer >= UPPER]
    return {"looking": len([*circuit.looking]), "in upper layers": len(upper), "induction": len(known & {*upper})}


if __name__ == "__main__":
    with on_machine():
        model = load("smollm2").model
    task = MetricTask.of(model, RepeatedList(model.tokenizer), Metric.kl)
    if not FOUND.exists():
        found = discover(model, task, n_examples=N)
        print(found.combined, found.scale, flush=True)
        if found.circuit is None:
            raise SystemExit("no circuit was found")
        save_circuit(found.circuit, FOUND)
    means = averages(model, task, 0, 256).patterns  # those of random tokens are of another length
    induction = load_circuit(INDUCTION)
    looking = {head: beside(induction.heads[head], means[head]) for head in induction.looking}
    circuits = {"found on random tokens": Circuit(means | looking), "found on the list": load_circuit(FOUND)}
    if not (HERE / "found.csv").exists():
        names, rows = [*circuits, "no head", *(f"random heads {k}" for k in range(DRAWS))], []
        for seed in SEEDS:
            measured = kept(model, [*circuits.values()], seed)
            rows += [{"circuit": name} | row for name, row in zip(names, measured, strict=True)]
        pd.DataFrame(rows).to_csv(HERE / "found.csv", index=False, float_format="%.3f")
    said = pd.read_csv(VERDICTS).to_dict("records") if VERDICTS.exists() else []
    for name, circuit in reversed(circuits.items()):
        if name in {row["circuit"] for row in said}:
            continue
        said.append({"circuit": name, **induction_among(circuit)})
        said[-1] |= verdict(validate(model, task, circuit, n_examples=N))
        print(said[-1], flush=True)
        pd.DataFrame(said).to_csv(VERDICTS, index=False, float_format="%.3f")
    seen = role_attention(model, task.examples(N, 1))[..., task.roles.index(END), task.roles.index("next")]
    most = sorted(means, key=lambda head: -seen[head])[:PATCHED]
    composed = path_patching(model, task, Circuit(dict.fromkeys(most, OneHot({END: "next"}))), n_examples=64)
    print(composed, flush=True)
    composed.table().to_csv(HERE / "composition.csv", index=False, float_format="%.3f")

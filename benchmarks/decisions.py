"""How often is a decision on a loss wrong? Real losses of circuits, drawn again and again.

    python -m benchmarks.decisions [MODEL ...] [--times 1000] [--json]

4,096 losses of each circuit (one of them in bfloat16) are taken for the truth, and samples of 32 to 1,024 are drawn
from them. Each is decided against the true mean itself: then every decision is a wrong one. With betting, any look at a
sample counts, as in a sequential test; the rule before (three standard errors) is measured beside it, after 128, 512
and 1,024 examples. ``needed`` is the number of examples after which half of the samples are decided against the
threshold of 0.05.

Success, written down before the first run: at most 1% wrong by betting, for every model and circuit. The exit code is 0
if so, and 1 if not.
"""

import argparse
import json
import sys
from collections.abc import Iterator

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.arguments import at_least_one
from circuits import Circuit, Task
from circuits.averages import averages
from circuits.circuit_file import load_circuit
from circuits.losses.betting import decided
from circuits.losses.loss import Mean
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import SequentialTest
from circuits.model.transformer import Transformer
from circuits.settings import DEFAULT
from retrieval_interp.models import library
from retrieval_interp.models.language import on_task
from retrieval_interp.models.provenance import versions

MODELS = ("transformer_a", "no_mlp", "induction", "ioi", "transformer_a:bfloat16")
N, LOOKS, LIMIT, WRONG = 4096, (32, 64, 128, 256, 512, 1024), 0.05, 0.01
BEFORE = (128, 512, 1024)


def loaded(name: str) -> tuple[Transformer, Task, Circuit]:
    """Return a model, by name; ``ioi`` on the language task of that name, ``MODEL:bfloat16`` in that precision."""
    name, _, precision = name.partition(":")
    circuit = load_circuit(library.find(name) / "circuit.yaml")
    model, task = on_task(name, "ioi") if name == "ioi" else library.load(name)[:2]
    return (model.to(torch.bfloat16) if precision == "bfloat16" else model), task, circuit


def excesses(model: Transformer, task: Task, circuit: Circuit) -> Iterator[tuple[str, Float[Tensor, " example"]]]:
    """Yield the excess of every example, and its name: own losses, the circuit, and its heads alone."""
    test = SequentialTest(model, task, Sample(task, N, 99), LIMIT, averages(model, task, seed=77))
    idle = Circuit({head: own for head, own in circuit.heads.items() if own.name == "idle"})
    names = {"own": Circuit(), "circuit": circuit, "heads alone": idle}
    own, *others = (losses.double().mean(dim=1) for losses in test.each(names.values()))
    yield "own", (own - own.mean()) / test.scale.width
    yield from zip([*names][1:], ((other - own) / test.scale.width for other in others), strict=True)


def wrong(values: Float[Tensor, " example"], times: int) -> dict[str, float]:
    """Return the shares of samples that are decided at their own mean, and the examples that half of them need."""
    bounded = values.clamp(-1, 1)
    drawn = torch.randint(len(values), (times, LOOKS[-1]), generator=torch.Generator().manual_seed(0))
    samples, mean = bounded[drawn], bounded.mean().item()
    sides = [decided(one, mean, DEFAULT.error) for one in samples]  # any look: the wealth at its highest
    row = {f"betting {side}": sides.count(side) / times for side in ("below", "above")}
    for n in BEFORE:
        means = [Mean.of(one[:n]) for one in values[drawn]]
        apart = [(one.mean - values.mean().item()) / max(one.standard_error, 1e-12) for one in means]
        row[f"3 s.e. after {n}"] = sum(abs(one) > DEFAULT.sure for one in apart) / times
    few = samples[:100]
    known = [next((n for n in LOOKS if decided(one[:n], LIMIT, DEFAULT.error) != "undecided"), N) for one in few]
    return {**row, "needed": sorted(known)[len(known) // 2]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--times", type=at_least_one, default=1000)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.models:
        for what, values in excesses(*loaded(name)):
            skew = ((values - values.mean()) ** 3).mean() / values.std(correction=0) ** 3
            row = {"model": name, "losses": what, "mean": values.mean().item(), "skew": skew.item()}
            rows.append({**row, **wrong(values, arguments.times)})
    found = pd.DataFrame(rows)
    passed = bool((found[["betting below", "betting above"]].max(axis=1) <= WRONG).all())
    if arguments.json:
        command = f"python -m benchmarks.decisions {' '.join(arguments.models)} --times {arguments.times} --json"
        print(json.dumps({"command": command, **versions(), "passed": passed, "rows": rows}))
        return not passed
    print(found.round(4).to_string())
    print("passed" if passed else "not passed")
    return not passed


if __name__ == "__main__":
    sys.exit(main())

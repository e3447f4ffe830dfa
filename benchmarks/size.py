"""Time and memory for a model of GPT-2 small's shape: which of its heads need content.

    python -m benchmarks.size [--prompts 512] [--json]

The model has 12 layers of 12 heads with random weights, the prompts 20 random tokens each. A gate for each head,
between its own pattern and its average, ranks them (``circuits/discovery/gates.py``). The first ``AROUND`` are then
replaced, each alone, on at least 128 prompts, and on up to all of them while the decision is open. The loss is the KL
divergence from the unablated model. Processor seconds are those of all cores together.
"""

import argparse
import json
import resource
import time
import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig

from benchmarks.arguments import at_least
from circuits.averages import averages
from circuits.circuit import Circuit
from circuits.discovery.gates import learned_gates
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import SequentialTest
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples
from circuits.utils.progress import shown
from retrieval_interp.language_tasks.language_task import END, LanguageTask, Metric, answers
from retrieval_interp.language_tasks.metric import MetricTask
from retrieval_interp.models.provenance import versions

THRESHOLD = 0.2  # of the range: 80% is kept
AROUND = 16  # heads that are replaced one by one
STEPS, PRICES = 48, (2e-4, 1e-2)  # of a head's own pattern, in nats

GPT2 = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "d_mlp": 3072, "n_ctx": 1024, "d_vocab": 50257}
TOKENS = 20


@dataclass(frozen=True)
class RandomTokens(LanguageTask):
    """Prompts of random tokens, with a random right answer; without a tokenizer."""

    name = "random tokens"
    roles: ClassVar[tuple[str, ...]] = ("start", END)
    tokenizer: None = None  # type: ignore[assignment]
    n_tokens: int = GPT2["d_vocab"]

    def draw(self, n: int, rng: np.random.Generator) -> Examples:
        """Draw ``n`` prompts."""
        drawn = torch.from_numpy(rng.integers(0, self.n_tokens, (n, TOKENS + 2)))
        at = {"start": torch.zeros(n, dtype=torch.long), END: torch.full((n,), TOKENS - 1)}
        return Examples(drawn[:, :TOKENS], answers(drawn[:, -2], drawn[:, -1]), Roles.of(at))


def of_shape(**shape: int) -> HookedTransformer:
    """Return a model with random weights."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cfg = HookedTransformerConfig(**shape, act_fn="gelu_new", normalization_type="LN", seed=0, device="cpu")
        return HookedTransformer(cfg).eval()


def measure(model: HookedTransformer, n_prompts: int = 512) -> dict[str, object]:
    """Tell content heads from positional heads, and return times and memory."""
    task = MetricTask(RandomTokens(None, n_tokens=model.cfg.d_vocab), model, Metric.kl, 1.0)
    with shown(None, "content or position") as progress:
        began, used = time.perf_counter(), time.process_time()
        means = averages(model, task)
        averaged, averaging = time.perf_counter(), time.process_time()
        few = task.examples(current().ranked, 1)
        ways = [Circuit(means.patterns), Circuit()]
        gates = learned_gates(model, task, few, ways, PRICES, STEPS, progress=progress)
        ranked, ranking = time.perf_counter(), time.process_time()
        test = SequentialTest(model, task, Sample(task, n_prompts, 0), THRESHOLD, means, searching=True)
        costliest = sorted(gates, key=lambda head: float(gates[head][:, 0].sum()))[:AROUND]
        single = {head: Circuit({head: means.patterns[head]}) for head in costliest}
        decided = test.test(single, min_examples=current().enough)
        ended, ending = time.perf_counter(), time.process_time()
    return {
        "heads": len(gates),
        "prompts": n_prompts,
        "tokens": TOKENS,
        "cores": torch.get_num_threads(),
        "seconds_averages": round(averaged - began, 1),
        "seconds_ranking": round(ranked - averaged, 1),
        "seconds_alone": round(ended - ranked, 1),
        "processor_seconds_averages": round(averaging - used, 1),
        "processor_seconds_ranking": round(ranking - averaging, 1),
        "processor_seconds_alone": round(ending - ranking, 1),
        "sequences": test.n_evaluations,
        "content_heads": sum(one.excess >= THRESHOLD for one in decided.values()),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "weights_mib": sum(p.numel() * p.element_size() for p in model.parameters()) // 2**20,
        **versions(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=at_least(2), default=512)
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    arguments = parser.parse_args()
    result = measure(of_shape(**GPT2), arguments.prompts)
    if arguments.json:
        print(json.dumps(result, indent=2))
    else:
        for name, value in result.items():
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()

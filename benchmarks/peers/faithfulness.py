"""Faithfulness against size: what a model still gets right if only the heads that count most are its own.

All other heads write what they write on the counterfactual; embedding and MLPs are the model's own. The metric is
1 for the model, and 0 for the model on the counterfactuals. Its curve over the number of heads has two figures (Mueller
et al. 2025, *MIB: A Mechanistic Interpretability Benchmark*):

    CPR    the area under the curve; higher is better
    CMD    the area between the curve and 1; lower is better
"""

from collections.abc import Sequence
from itertools import pairwise

import torch

from benchmarks.peers.head_scores import Scores
from benchmarks.peers.metric import Measured


@torch.no_grad()
def faithfulness(measured: Measured, scores: Scores) -> list[float]:
    """Return the metric with the first 0, 1, 2, ... heads intact; of equal scores, lower layers first."""
    graph, first = measured.graph, sorted(scores, key=lambda head: (-scores[head], head))
    curve = []
    for size in range(len(first) + 1):
        patched = torch.zeros_like(graph.possible)
        for head in first[size:]:
            sender = graph.received[head] + 1
            patched[:, sender] = graph.possible[:, sender]
        curve.append(float(measured.metric(graph.run(patched)[0])))
    return curve


def cpr(curve: Sequence[float]) -> float:
    """Return the area under a curve of faithfulness, by trapezoids, over shares of the heads from 0 to 1."""
    return sum(pair[0] + pair[1] for pair in pairwise(curve)) / 2 / (len(curve) - 1)


def cmd(curve: Sequence[float]) -> float:
    """Return the area between a curve of faithfulness and 1."""
    return cpr([abs(1 - value) for value in curve])

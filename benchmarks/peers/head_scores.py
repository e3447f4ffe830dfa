"""How much each head counts, as one number: from edges, from attention, from a discovery, and by chance."""

import random

from benchmarks.ground_truth.truth import GroundTruth
from benchmarks.peers.graph import Edges, Graph
from circuits import Discovery, Head, OneHot, role_attention

Scores = dict[Head, float]


def by_edges(edges: Edges, graph: Graph) -> Scores:
    """Return the highest threshold at which a head still has an edge to it and an edge from it."""
    return {head: float(min(edges[place].max(), edges[:, place + 1].max())) for head, place in graph.received.items()}


def by_attention(truth: GroundTruth, n_examples: int, seed: int) -> Scores:
    """Return a head's highest average attention from one role to another one of the same chain."""
    seen = role_attention(truth.model, truth.problem.examples(n_examples, seed))
    seen.diagonal(dim1=-2, dim2=-1).zero_()
    return {head: float(seen[head.layer, head.index].max()) for head in truth.all_heads}


def by_discovery(found: Discovery) -> Scores:
    """Return 2 for a head with a path or a row to a position, 1 for another pattern, 0 for uniform and identity.

    Added, below 1, is what the head's mean ablation alone costs.
    """
    circuit, scores = found.circuit, {}
    for head, loss in found.heads.alone.items():
        own, cost = circuit.heads[head], max(loss.mean, 0.0)
        patterned = str(own) not in ("uniform", "identity")
        scores[head] = patterned + bool(own.paths or isinstance(own, OneHot)) + cost / (1 + cost)
    return scores


def by_chance(truth: GroundTruth, seed: int) -> Scores:
    """Return random numbers."""
    rng = random.Random(seed)
    return {head: rng.random() for head in truth.all_heads}

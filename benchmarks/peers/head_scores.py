"""How much each head counts, as one number: from edges, from attention, from a discovery, and by chance."""

import random

from benchmarks.ground_truth.truth import GroundTruth
from benchmarks.peers.graph import Edges, Graph
from circuits import Discovery, Head, role_attention

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
    """Return 1 for a head that is neither uniform nor identity, plus, below 1, what its mean ablation alone costs."""
    alone = {head: max(loss.mean, 0.0) for head, loss in found.heads.alone.items()}
    simple = {head for head, mechanism in found.circuit.heads.items() if str(mechanism) in ("uniform", "identity")}
    return {head: (head not in simple) + loss / (1 + loss) for head, loss in alone.items()}


def by_chance(truth: GroundTruth, seed: int) -> Scores:
    """Return random numbers."""
    rng = random.Random(seed)
    return {head: rng.random() for head in truth.all_heads}

"""Edge attribution patching: what patching an edge would cost, by the gradient of the metric.

The score of an edge is the gradient at its receiver, times the difference that patching makes to its sender. It is the
derivative of the metric by how far the edge is patched.

    EAP       at the example itself (Syed et al. 2023, *Attribution Patching Outperforms Automated Circuit Discovery*)
    EAP-IG    averaged over embeddings between the counterfactual and the example (Hanna et al. 2024, *Have Faith in
              Faithfulness*)
"""

import torch

from benchmarks.peers.graph import Edges
from benchmarks.peers.metric import Measured


def eap(measured: Measured) -> Edges:
    """Return the size of every edge's score."""
    return eap_ig(measured, 1)


def eap_ig(measured: Measured, steps: int = 5) -> Edges:
    """Return the size of every edge's score, averaged over ``steps`` embeddings; the last is that of the example."""
    graph = measured.graph
    with torch.no_grad():
        clean = graph.run(torch.zeros_like(graph.possible))[1]
    difference, total = graph.corrupted - clean, torch.zeros_like(graph.possible)
    for step in range(steps):
        patched = torch.zeros_like(graph.possible, requires_grad=True)
        embedding = clean[0] + (1 - (step + 1) / steps) * difference[0]
        outputs = graph.run(patched, added=difference, embedding=embedding)[0]
        total += torch.autograd.grad(measured.metric(outputs), patched)[0]
        graph.n_backward += 1
    return (total / steps).abs()

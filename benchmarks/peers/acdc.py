"""ACDC: patch edges one after the other; keep those whose patching costs too much (Conmy et al. 2023, Algorithm 1)."""

from collections.abc import Sequence

import torch

from benchmarks.peers.graph import Edges
from benchmarks.peers.metric import Measured


@torch.no_grad()
def acdc(measured: Measured, threshold: float) -> Edges:
    """Return 1 for the edges that are kept.

    From the output down, every edge is patched. It stays patched if the metric falls by less than the threshold. A node
    whose edges upwards are all patched has no effect; its own edges are then patched without a pass.
    """
    graph, kept = measured.graph, measured.graph.possible.clone()
    last = measured.metric(graph.run(graph.possible - kept)[0])
    for receiver in reversed(range(len(kept))):
        if receiver + 1 < len(kept) and not kept[:, receiver + 1].any():
            kept[receiver] = 0
            continue
        for sender in reversed(range(int(graph.possible[receiver].sum()))):
            kept[receiver, sender] = 0
            now = measured.metric(graph.run(graph.possible - kept)[0])
            if last - now < threshold:
                last = now
            else:
                kept[receiver, sender] = 1
    return kept


def survival(measured: Measured, thresholds: Sequence[float]) -> Edges:
    """Return for every edge the highest threshold at which it is kept, or 0."""
    return torch.stack([threshold * acdc(measured, threshold) for threshold in thresholds]).amax(dim=0)

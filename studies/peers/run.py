"""Which heads matter, on models whose circuit is known: discovery beside ACDC, EAP and EAP-IG. README.md has the rule.

    python studies/peers/run.py FOLDER [--seeds 12] [--level NAME ...]

FOLDER gets heads.csv (the score of every head), edges.csv (of every edge, by the methods that have one) and table.csv
(by level and method, averaged over models: the area under the ROC curve, the average precision, CPR, sequences, CPU
seconds).

A head that another one backs up counts neither as true nor as false. Every method gets 32 examples. Discovery draws as
many again for averages and for the final losses, and takes four times as many if they leave open whether a model solves
its task. The peers take the next example as an example's counterfactual, and measure one metric. Sequences are forward
passes times examples; a backward pass counts as another two; two runs that scale the metric do not count.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Float, Int
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Tensor

from benchmarks.ground_truth.levels import COMPILED, LEVELS
from benchmarks.ground_truth.truth import THRESHOLD, GroundTruth
from circuits import Circuit, Head, OneHot, discover, evaluate, role_attention
from circuits.averages import Averages
from circuits.errors import Unsolved
from circuits.model.hooked_transformer import HookedTransformer
from retrieval_interp.ground_truth.chains import ChainTask

N_EXAMPLES, SEED = 32, 7
MOST_EXAMPLES = 2048  # of discovery
FRESH = 8  # the seed of the examples for the curve of faithfulness
THRESHOLDS = (0.3, 0.1, 0.03, 0.01, 0.003)  # of ACDC: shares of what the model gets right
ONCE = 0.01  # chosen after a look at all five on three seeds

Written = Float[Tensor, "sender batch pos d_model"]
Edges = Float[Tensor, "receiver sender"]
Scores = dict[Head, float]


class Graph:
    """A transformer as a graph on some examples: what each node writes reaches every later node by an edge of its own.

    Senders are the embedding, then layer by layer the heads and the MLP; receivers are the queries, the keys and the
    values of the heads, then the MLP of every layer, then the output (Conmy et al. 2023). An edge is patched if its
    receiver gets what its sender writes on the counterfactual.

    Attributes:
        possible: 1 where a sender comes before a receiver, ``[receiver, sender]``.
        nodes: for every receiver, the index as a sender of the head or MLP that it belongs to; None for the output.
        corrupted: what every sender writes on the counterfactuals.
        n_forward: the number of forward passes so far, each of all examples.
        n_backward: the number of backward passes.
    """

    def __init__(
        self, model: HookedTransformer, inputs: Int[Tensor, "batch pos"], other: Int[Tensor, "batch pos"]
    ) -> None:
        self.model, self.inputs = model, inputs
        self.n_layers, self.n_heads = model.cfg.n_layers, model.cfg.n_heads
        self.nodes: list[int | None] = []
        n_before = []  # the number of senders below every receiver
        for layer in range(self.n_layers):
            senders = [self.sender(Head(layer, index)) for index in range(self.n_heads)]
            self.nodes += [*senders * 3, senders[-1] + 1]
            n_before += [*[senders[0]] * (3 * self.n_heads), senders[-1] + 1]
        n = self.sender(Head(self.n_layers, 0))
        self.nodes, n_before = [*self.nodes, None], [*n_before, n]
        self.possible = (torch.arange(n) < torch.tensor(n_before)[:, None]).float()
        self.n_forward = self.n_backward = 0
        with torch.no_grad():
            _, self.corrupted = self.run(torch.zeros_like(self.possible), inputs=other)

    def sender(self, head: Head) -> int:
        """Return the index of a head as a sender."""
        return 1 + head.layer * (self.n_heads + 1) + head.index

    def score(self, edges: Edges, head: Head) -> float:
        """Return the highest value at which a head still has an edge to it and an edge from it."""
        sender = self.sender(head)
        to = [receiver for receiver, node in enumerate(self.nodes) if node == sender]
        return float(min(edges[to].max(), edges[:, sender].max()))

    def named(self, edges: Edges) -> list[tuple[str, str, float]]:
        """Return sender, receiver and value of every possible edge."""
        senders, receivers = ["embed"], []
        for layer in range(self.n_layers):
            heads = [f"L{layer}H{index}" for index in range(self.n_heads)]
            senders += [*heads, f"MLP{layer}"]
            receivers += [*(f"{head}.{part}" for part in "qkv" for head in heads), f"MLP{layer}"]
        receivers.append("output")
        return [(senders[at], receivers[to], float(edges[to, at])) for to, at in self.possible.nonzero().tolist()]

    def _first(self, layer: int) -> int:
        """Return the index of the queries of a layer's first head."""
        return layer * (3 * self.n_heads + 1)

    def run(
        self,
        patched: Edges,
        added: Written | None = None,
        embedding: Float[Tensor, "batch pos d_model"] | None = None,
        inputs: Int[Tensor, "batch pos"] | None = None,
    ) -> tuple[Float[Tensor, "batch pos d_out"], Written]:
        """Return the outputs, and what every sender wrote, with some edges patched.

        Args:
            patched: 1 for a patched edge, 0 for all others.
            added: what a patched edge adds to its receiver, by sender; by default the difference between the
                counterfactual and what the sender has written in this run.
            embedding: what the embedding writes instead.
            inputs: other inputs; by default those of the graph.
        """
        self.n_forward += 1
        written: list[Tensor] = []

        def extra(first: int, n: int) -> Float[Tensor, "batch pos receiver d_model"] | float:
            """Return what is added to the inputs of ``n`` receivers."""
            rows = patched[first : first + n, : len(written)]
            if not (rows.requires_grad or rows.any()):
                return 0.0
            differences = self.corrupted[: len(written)] - torch.stack(written) if added is None else added
            return torch.einsum("rs,sbpd->bprd", rows, differences[: len(written)])

        def embed(x: Tensor, hook: Any) -> Tensor:
            written.append(x if embedding is None else embedding)
            return written[0]

        def write(x: Tensor, hook: Any) -> None:
            written.append(x)

        def write_heads(x: Tensor, hook: Any) -> None:
            written.extend(torch.einsum("bphv,hvd->hbpd", x, self.model.blocks[hook.layer()].attn.W_O))

        def read(first: int, n: int) -> Callable[[Tensor, Any], Tensor]:
            return lambda x, hook: ((x if x.ndim == 4 else x[:, :, None]) + extra(first, n)).reshape(x.shape)

        hooks: list[tuple[str, Any]] = [("blocks.0.hook_resid_pre", embed)]
        for layer in range(self.n_layers):
            first = self._first(layer)
            hooks += [
                *(
                    (f"blocks.{layer}.hook_{part}_input", read(first + place * self.n_heads, self.n_heads))
                    for place, part in enumerate("qkv")
                ),
                (f"blocks.{layer}.attn.hook_z", write_heads),
                (f"blocks.{layer}.hook_mlp_in", read(first + 3 * self.n_heads, 1)),
                (f"blocks.{layer}.hook_mlp_out", write),
            ]
        hooks.append((f"blocks.{self.n_layers - 1}.hook_resid_post", read(self._first(self.n_layers), 1)))
        with _inputs_apart(self.model), self.model.hooks(fwd_hooks=hooks):
            outputs = self.model(self.inputs if inputs is None else inputs)
        return outputs, torch.stack(written)


@contextmanager
def _inputs_apart(model: HookedTransformer) -> Iterator[None]:
    """Let a model compute the inputs of queries, keys and values of each head, and of each MLP, apart."""
    flags = ("use_split_qkv_input", "use_hook_mlp_in")
    before = [getattr(model.cfg, flag) for flag in flags]
    try:
        for flag in flags:
            setattr(model.cfg, flag, True)
        yield
    finally:
        for flag, value in zip(flags, before, strict=True):
            setattr(model.cfg, flag, value)


@dataclass(frozen=True)
class Measured:
    """A model's graph, and the metric on its outputs: 1 for the model, 0 for the model on the counterfactuals."""

    graph: Graph
    metric: Callable[[Float[Tensor, "batch pos d_out"]], Float[Tensor, ""]]


def measured(truth: GroundTruth, seed: int) -> Measured:
    """Return the graph of a model on fresh examples, and the metric: the outputs of the right answers.

    The loss itself would not do for what follows gradients: at a loss of 0 they are 0.
    """
    examples = truth.task.examples(N_EXAMPLES, seed)
    other = examples.inputs.roll(1, dims=0)

    def right(outputs: Tensor) -> Tensor:
        if isinstance(truth.task, ChainTask):
            answers, wanted = truth.task.answers(outputs, examples)
        else:
            answers, wanted = truth.task.answers(outputs), examples.targets
        return (answers * wanted).sum(dim=-1).mean()

    with torch.no_grad():
        low, high = right(truth.model(other)), right(truth.model(examples.inputs))
    return Measured(Graph(truth.model, examples.inputs, other), lambda outputs: (right(outputs) - low) / (high - low))


@torch.no_grad()
def acdc(on: Measured, threshold: float) -> Edges:
    """Return 1 for the edges that are kept (Conmy et al. 2023, Algorithm 1).

    From the output down, every edge is patched. It stays patched if the metric falls by less than the threshold. A node
    whose edges upwards are all patched has no effect; its own edges are then patched without a pass.
    """
    graph, kept = on.graph, on.graph.possible.clone()
    last = on.metric(graph.run(graph.possible - kept)[0])
    for receiver in reversed(range(len(kept))):
        node = graph.nodes[receiver]
        if node is not None and not kept[:, node].any():
            kept[receiver] = 0
            continue
        for sender in reversed(range(int(graph.possible[receiver].sum()))):
            kept[receiver, sender] = 0
            now = on.metric(graph.run(graph.possible - kept)[0])
            if last - now < threshold:
                last = now
            else:
                kept[receiver, sender] = 1
    return kept


def survival(on: Measured, *thresholds: float) -> Edges:
    """Return for every edge the highest threshold at which ACDC keeps it, or 0."""
    return torch.stack([threshold * acdc(on, threshold) for threshold in thresholds]).amax(dim=0)


def eap(on: Measured, steps: int = 1) -> Edges:
    """Return the derivative of the metric by how far an edge is patched, its size (EAP; Syed et al. 2023).

    With several steps it is averaged over embeddings from the counterfactual's to the example's (EAP-IG; Hanna et al.
    2024).
    """
    graph = on.graph
    with torch.no_grad():
        clean = graph.run(torch.zeros_like(graph.possible))[1]
    difference, total = graph.corrupted - clean, torch.zeros_like(graph.possible)
    for step in range(steps):
        patched = torch.zeros_like(graph.possible, requires_grad=True)
        embedding = clean[0] + (1 - (step + 1) / steps) * difference[0]
        outputs = graph.run(patched, added=difference, embedding=embedding)[0]
        total += torch.autograd.grad(on.metric(outputs), patched)[0]
        graph.n_backward += 1
    return (total / steps).abs()


@dataclass(frozen=True)
class Found:
    """What a method says: a score of every head, the sequences that it took, and perhaps a score of every edge."""

    heads: Scores
    sequences: int
    edges: Edges | None = None


def by_edges(method: Callable[[Measured], Edges]) -> Callable[[GroundTruth, int], Found]:
    """Score edges; a head has the highest score at which it still has an edge to it and an edge from it."""

    def found(truth: GroundTruth, seed: int) -> Found:
        on = measured(truth, SEED)
        edges, graph = method(on), on.graph
        heads = {head: graph.score(edges, head) for head in truth.all_heads}
        return Found(heads, (graph.n_forward + 2 * graph.n_backward) * N_EXAMPLES, edges)

    return found


def by_discovery(truth: GroundTruth, seed: int, n_examples: int = N_EXAMPLES) -> Found:
    """Return 2 for a head with a path or a row to a position, 1 for another pattern, 0 for uniform, identity and idle.

    Added, below 1, is what the head's average pattern alone costs. A model whose heads do nothing gets 0.
    """
    try:
        found = discover(truth.model, truth.task, n_examples=n_examples, threshold=THRESHOLD, seed=SEED)
    except Unsolved:  # too few examples to say that the model solves its task
        if n_examples >= MOST_EXAMPLES:
            return Found(dict.fromkeys(truth.all_heads, 0.0), n_examples)
        more = by_discovery(truth, seed, 4 * n_examples)
        return Found(more.heads, n_examples + more.sequences)
    scores = dict.fromkeys(truth.all_heads, 0.0)
    assert found.content_or_position is not None
    for head, one in found.content_or_position.alone.items():
        own, cost = found.circuit.heads[head], max(one.loss.mean, 0.0)
        patterned = str(own) not in ("uniform", "identity", "idle")
        scores[head] = patterned + bool(own.paths or isinstance(own, OneHot)) + cost / (1 + cost)
    return Found(scores, found.n_evaluations + found.n_readings)


def by_ablation(truth: GroundTruth, seed: int) -> Found:
    """Return what making a head idle, alone, does to the loss of each example, on average (mean ablation)."""
    over, on = (truth.task.examples(N_EXAMPLES, SEED + place) for place in (1, 0))
    ways = [Circuit(), *(Circuit({head: "idle"}) for head in truth.all_heads)]
    own, *losses = evaluate(truth.model, truth.task, on, ways, averages=Averages.of(truth.model, over)).mean(dim=2)
    scores = {head: float((loss - own).abs().mean()) for head, loss in zip(truth.all_heads, losses, strict=True)}
    return Found(scores, N_EXAMPLES * (1 + len(ways)))


def by_attention(truth: GroundTruth, seed: int) -> Found:
    """Return a head's highest average attention from one role to another one of the same chain."""
    seen = role_attention(truth.model, truth.task.examples(N_EXAMPLES, SEED))
    seen.diagonal(dim1=-2, dim2=-1).zero_()
    return Found({head: float(seen[head.layer, head.index].max()) for head in truth.all_heads}, N_EXAMPLES)


def by_chance(truth: GroundTruth, seed: int) -> Found:
    """Return random numbers, other ones for each model."""
    rng = random.Random(seed)
    return Found({head: rng.random() for head in truth.all_heads}, 0)


METHODS: dict[str, Callable[[GroundTruth, int], Found]] = {
    "discovery": by_discovery,
    "ACDC": by_edges(lambda on: survival(on, *THRESHOLDS)),
    "ACDC once": by_edges(lambda on: survival(on, ONCE)),
    "EAP": by_edges(eap),
    "EAP-IG": by_edges(lambda on: eap(on, 5)),
    "ablation": by_ablation,
    "attention": by_attention,
    "chance": by_chance,
}


@torch.no_grad()
def cpr(on: Measured, scores: Scores) -> float:
    """Return the area under the curve of faithfulness over the share of heads that are the model's own (MIB, 2025).

    The heads that count most are intact, of equal scores those of lower layers; all others write what they write on the
    counterfactual; embedding and MLPs are the model's own.
    """
    graph, first = on.graph, sorted(scores, key=lambda head: (-scores[head], head))
    curve = []
    for size in range(len(first) + 1):
        patched = torch.zeros_like(graph.possible)
        for head in first[size:]:
            sender = graph.sender(head)
            patched[:, sender] = graph.possible[:, sender]
        curve.append(float(on.metric(graph.run(patched)[0])))
    return sum(pair[0] + pair[1] for pair in pairwise(curve)) / 2 / (len(curve) - 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the tables go")
    parser.add_argument("--seeds", type=int, default=12, help="number of models of every level")
    parser.add_argument("--level", nargs="+", choices=LEVELS, default=[*COMPILED], help="by default all compiled ones")
    arguments = parser.parse_args()
    models, heads, edges = [], [], []
    for level in arguments.level:
        for seed in range(arguments.seeds):
            truth = LEVELS[level](seed)
            on, scored = measured(truth, FRESH), [head for head in truth.all_heads if head not in truth.open_heads]
            for method, score in METHODS.items():
                began, row = time.process_time(), {"level": level, "method": method, "seed": seed}
                found = score(truth, seed)
                cost = {"sequences": found.sequences, "seconds": time.process_time() - began}
                scores = {head: float(f"{value:.6g}") for head, value in found.heads.items()}
                table = [
                    {**row, "head": head, "true": head in truth.true_heads, "score": scores[head]} for head in scored
                ]
                heads += table
                true, own = [one["true"] for one in table], [one["score"] for one in table]
                figures = {"area": roc_auc_score(true, own), "precision": average_precision_score(true, own)}
                models.append({**row, **figures, "CPR": cpr(on, scores), **cost})
                edges += [
                    {**row, "sender": sender, "receiver": receiver, "score": value}
                    for sender, receiver, value in (on.graph.named(found.edges) if found.edges is not None else ())
                ]
            print(f"\r{level}: {seed + 1} of {arguments.seeds}   ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(heads).to_csv(arguments.folder / "heads.csv", index=False)
    pd.DataFrame(edges).to_csv(arguments.folder / "edges.csv", index=False)
    table = pd.DataFrame(models).drop(columns="seed").groupby(["level", "method"], sort=False).mean().round(3)
    table.reset_index().to_csv(arguments.folder / "table.csv", index=False)
    print(table.to_string())


if __name__ == "__main__":
    main()

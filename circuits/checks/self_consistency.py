"""Self-consistency: do the heads of a circuit look where the circuit says, once the circuit has replaced the others?

A validated circuit is told where to look. Here each head with paths between roles is intact and looks
for itself, in the residual stream that the replaced heads below it have made. A path is self-consistent if the head
pays it at least ``ENOUGH`` attention, for every label of the problem's main group that its condition covers. A head is
self-consistent if all its paths are, and the loss with this head alone intact is below the threshold. A circuit is
self-consistent if all its heads with paths are, and the loss with all of them intact at once is below the threshold.
Within three standard errors of its threshold, a number is undecided.

A head that is not self-consistent misses something that a replaced head below it writes. Each head below is therefore
left intact as well, one at a time. If this makes the head self-consistent, an edge between the two is missing: the
mechanism of the lower head leaves out what the upper head needs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.ablation.hooks import ablated
from circuits.checks.self_consistency_result import ELSEWHERE, HeadConsistency, OwnAttention, SelfConsistency
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.losses.loss import Loss
from circuits.losses.mean import Mean, per_example
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.one_hot import OneHot
from circuits.model.batching import sequences_at_once
from circuits.model.patterns import pattern_hook
from circuits.model.transformer import Transformer
from circuits.problem import Examples, Problem
from circuits.role_paths import role_paths
from circuits.utils.progress import Progress, part_of, shown


def self_consistency(
    model: Transformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 512,
    seed: int = 0,
    threshold: float = 0.05,
    max_examples: int = 0,
    progress: Progress | None = None,
) -> SelfConsistency:
    """Let the heads with paths of a circuit look for themselves among replaced heads.

    Args:
        model: any HookedTransformer without padding.
        problem: the model's task; all examples have the same length.
        circuit: the circuit; heads that it does not name are intact throughout.
        n_examples: the number of examples.
        seed: the seed of the examples.
        threshold: a loss below it counts as low; the paper uses 0.05.
        max_examples: the largest number of examples. While the circuit is undecided, the measurement is repeated with
            four times as many examples, up to this number. By default it is not repeated.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or has no path between roles; or a number is out
            of range.
    """
    with shown(progress, "self-consistency") as progress:
        while True:
            sample = Sample(problem, n_examples, stream_seed(seed, "self-consistency"), next(model.parameters()).device)
            test = SequentialTest(model, problem, sample, threshold)
            found = _measured(test, sample, circuit, progress)
            if found.decision != "undecided" or n_examples >= max_examples:
                return found
            n_examples = min(4 * n_examples, max_examples)


def _measured(test: SequentialTest, sample: Sample, circuit: Circuit, progress: Progress) -> SelfConsistency:
    content = heads_with_paths(circuit)
    circuits = [Circuit(), circuit, circuit.without_heads(content)]
    unablated, combined, intact = test.measure(circuits, progress=part_of(progress, 0.0, 0.4))
    heads = consistency(test, sample.first, circuit, content)
    progress(0.6)
    heads = tuple(
        head if head.decision == "holds" else replace(head, restored_by=_restored_by(test, sample.first, circuit, head))
        for head in heads
    )
    progress(1.0)
    return SelfConsistency(heads, unablated, combined, intact, test.threshold, sample.roles.main_group)


def heads_with_paths(circuit: Circuit) -> tuple[Head, ...]:
    """Return the heads with paths between roles, from the lowest layer up.

    Raises:
        BadInput: there is none.
    """
    return tuple(dict.fromkeys(path.head for path in role_paths(circuit)))


def consistency(
    test: SequentialTest, examples: Examples, circuit: Circuit, heads: Sequence[Head]
) -> tuple[HeadConsistency, ...]:
    """Return what some heads with paths do, each of them intact alone.

    Args:
        test: measures the losses, on all of its examples.
        examples: the examples that attention is averaged over.
        circuit: the circuit.
        heads: the heads with paths.
    """
    losses = test.measure(circuit.without_heads([head]) for head in heads)
    own = own_attention(test.model, circuit, examples)
    return tuple(
        HeadConsistency(head, loss, test.threshold, tuple(one for one in own if one.path.head == head))
        for head, loss in zip(heads, losses, strict=True)
    )


def _restored_by(
    test: SequentialTest, examples: Examples, circuit: Circuit, failing: HeadConsistency
) -> Mapping[Head, Loss]:
    """Return the heads below, each of which makes a head self-consistent if it is intact as well; best first."""
    below = {head: circuit.without_heads([head]) for head in circuit.heads if head.layer < failing.head.layer}
    tested = test.test({head: without.without_heads([failing.head]) for head, without in below.items()})
    low = [head for head, own in tested.items() if own.decision == "below"]
    found = {}
    for head in sorted(low, key=lambda head: tested[head].loss.mean):
        (again,) = consistency(test, examples, below[head], [failing.head])
        if again.decision == "holds":
            found[head] = again.loss
    return found


@torch.no_grad()
def own_attention(model: Transformer, circuit: Circuit, examples: Examples) -> tuple[OwnAttention, ...]:
    """Return the attention that each head with paths pays by itself along its paths, with all heads below replaced.

    It is split by the labels of the main group at the path's target, where the path holds.
    """
    roles = examples.roles
    paths = role_paths(circuit)
    parts: dict[AttentionPath, list[Tensor]] = {path: [] for path in paths}
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    for start in range(0, len(examples), at_once):
        for path, attention in _on_roles(model, circuit, examples.take(slice(start, start + at_once)), paths):
            parts[path].append(attention)
    return tuple(one for path in paths for one in _split(circuit, path, roles, torch.cat(parts[path])))


def _on_roles(
    model: Transformer, circuit: Circuit, examples: Examples, paths: Iterable[AttentionPath]
) -> Iterable[tuple[AttentionPath, Float[Tensor, "example instance role"]]]:
    """Yield for every path the head's own attention from the source to each role of the instance."""
    seen: dict[int, Tensor] = {}

    def see(pattern: Tensor, hook: torch.nn.Module, layer: int) -> Tensor:
        seen[layer] = pattern  # before it is replaced: the hook of the ablation is called later
        return pattern

    hooks = [(pattern_hook(layer), partial(see, layer=layer)) for layer in {path.head.layer for path in paths}]
    with model.hooks(fwd_hooks=hooks), ablated(model, circuit, examples.roles):
        model(examples.inputs)
    example = torch.arange(len(examples), device=examples.inputs.device)[:, None, None]
    at = examples.roles.positions.transpose(1, 2)
    for path in paths:
        yield path, seen[path.head.layer][example, path.head.index, examples.roles[path.source][..., None], at]


def _split(
    circuit: Circuit, path: AttentionPath, roles: Any, attention: Float[Tensor, "example instance role"]
) -> Iterable[OwnAttention]:
    """Yield the attention for every label that the path covers."""
    mechanism = circuit.heads[path.head]
    assert isinstance(mechanism, OneHot)
    there = mechanism.holds(path.source, path.target, roles)
    group = roles.main_group
    labels = roles.group(group, path.target) if group else torch.zeros_like(roles[path.target])
    here = roles.positions.transpose(1, 2) == roles[path.target][..., None]  # roles that stand at the target
    here[..., roles.names.index(path.target)] = False
    attention = attention.masked_fill(here, 0.0)
    for label in labels[there].unique().tolist():
        each = per_example(attention.permute(2, 0, 1), (there & (labels == label)).float())  # [role, example]
        on = dict(zip(roles.names, each, strict=True))
        others = {role: Mean.of(on[role]).mean for role in roles.distinct if role != path.target}
        target = Mean.of(on[path.target])
        others[ELSEWHERE] = max(0.0, 1.0 - target.mean - sum(others.values()))
        yield OwnAttention(path, label if group else None, target, others)

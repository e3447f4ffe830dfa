"""Self-consistency: do the heads of a circuit look where the circuit says, once the circuit has replaced the others?

A validated circuit is told where to look. Here each head with paths between roles is intact and looks
for itself, in the residual stream that the replaced heads below it have made. A path is self-consistent if the head
pays it at least ``ENOUGH`` attention, for every label of the task's main group that its condition covers. A head is
self-consistent if all its paths are, and the loss with this head alone intact is below the threshold. A circuit is
self-consistent if all its heads with paths are, and the loss with all of them intact at once is below the threshold.
If the task gives the losses of every instance, they must be below it for every label as well.
Within three standard errors of its threshold, a number is undecided.

A head that is not self-consistent misses something that a replaced head below it writes. Each head below is therefore
left intact as well, one at a time. If this makes the head self-consistent, an edge from the lower to the upper head is
missing: the mechanism of the lower head leaves out what the upper head needs. The same is asked of all heads with paths
at once.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.ablation.hooks import ablating
from circuits.checks.self_consistency_result import ELSEWHERE, HeadConsistency, OwnAttention, SelfConsistency, low
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.losses.loss import Loss
from circuits.losses.loss_by_label import losses_by_label
from circuits.losses.mean import Mean, per_example
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.model.batching import sequences_at_once
from circuits.model.patterns import pattern_hook
from circuits.model.transformer import Transformer, run
from circuits.task import Examples, Task
from circuits.utils.progress import Progress, part_of, shown


@entrance
def self_consistency(
    model: Transformer,
    task: Task,
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
        task: the model's task; all examples have the same length.
        circuit: the circuit. Heads that it does not name are intact throughout; if there are any below a head with
            paths, the circuit is undecided at best.
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
            sample = Sample(task, n_examples, stream_seed(seed, "self-consistency"), next(model.parameters()).device)
            test = SequentialTest(model, task, sample, threshold)
            found = _measured(test, sample, circuit, progress)
            if found.decision != "undecided" or n_examples >= max_examples:
                return found
            n_examples = min(4 * n_examples, max_examples)


def _measured(test: SequentialTest, sample: Sample, circuit: Circuit, progress: Progress) -> SelfConsistency:
    content = heads_with_paths(circuit)
    without = circuit.without_heads(content)
    unablated, combined, intact = test.measure([Circuit(), circuit, without], progress=part_of(progress, 0.0, 0.4))
    (by_label,) = losses_by_label(test.model, test.task, sample.first, [without], _named(circuit))
    heads = consistency(test, sample.first, circuit, content)
    progress(0.6)
    heads = tuple(
        head
        if head.decision == "holds"
        else replace(head, restored_by=dict(restoring(test, sample.first, circuit, [head.head])))
        for head in heads
    )
    group = sample.roles.main_group
    cfg, top = test.model.cfg, content[-1].layer
    unnamed = sum(Head(layer, index) not in circuit.heads for layer in range(top) for index in range(cfg.n_heads))
    found = SelfConsistency(heads, unablated, combined, intact, test.threshold, group, by_label, unnamed)
    if found.together != "holds":
        found = replace(found, restored_by=dict(restoring(test, sample.first, circuit, content)))
    progress(1.0)
    return found


def heads_with_paths(circuit: Circuit) -> tuple[Head, ...]:
    """Return the heads with paths between roles, from the lowest layer up.

    Raises:
        BadInput: there is none.
    """
    return tuple(dict.fromkeys(path.head for path in _paths(circuit)))


def _paths(circuit: Circuit) -> tuple[AttentionPath, ...]:
    paths = tuple(path for path in circuit.paths if path.joins_roles)
    if not paths:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    return paths


def _named(circuit: Circuit) -> set[str]:
    """Return the roles at the ends of a circuit's paths."""
    return {role for path in _paths(circuit) for role in (path.source, path.target)}


def consistency(
    test: SequentialTest, examples: Examples, circuit: Circuit, heads: Sequence[Head]
) -> tuple[HeadConsistency, ...]:
    """Return what some heads with paths do, each of them intact alone.

    Args:
        test: measures the losses, on all of its examples.
        examples: the examples that attention, and the loss for every label, are averaged over.
        circuit: the circuit.
        heads: the heads with paths.
    """
    intact = [circuit.without_heads([head]) for head in heads]
    losses = test.measure(intact)
    splits = losses_by_label(test.model, test.task, examples, intact, _named(circuit))
    own = own_attention(test.model, circuit, examples)
    return tuple(
        HeadConsistency(head, loss, test.threshold, tuple(one for one in own if one.path.head == head), by_label)
        for head, loss, by_label in zip(heads, losses, splits, strict=True)
    )


def are_self_consistent(test: SequentialTest, examples: Examples, circuit: Circuit, intact: Sequence[Head]) -> bool:
    """Whether heads with paths, intact at once, keep the loss low; a single one must also look where it should."""
    if len(intact) == 1:
        return consistency(test, examples, circuit, intact)[0].decision == "holds"
    without = circuit.without_heads(intact)
    tested = test.test_one(without)
    if tested.decision != "below":
        return False
    (by_label,) = losses_by_label(test.model, test.task, examples, [without])
    return low(tested.loss, by_label, test.threshold) == "holds"


def restoring(
    test: SequentialTest, examples: Examples, circuit: Circuit, intact: Sequence[Head]
) -> Iterator[tuple[Head, Loss]]:
    """Yield the heads below, each of which makes heads with paths self-consistent if it is intact as well; best first.

    The loss is that with this head and the heads with paths intact.
    """
    below = [head for head in circuit.heads if head.layer < intact[-1].layer and head not in intact]
    tested = test.test({head: circuit.without_heads([head, *intact]) for head in below})
    for head in sorted(below, key=lambda head: tested[head].loss.mean):
        low_too = tested[head].decision == "below"
        if low_too and are_self_consistent(test, examples, circuit.without_heads([head]), intact):
            yield head, tested[head].loss


@torch.no_grad()
def own_attention(model: Transformer, circuit: Circuit, examples: Examples) -> tuple[OwnAttention, ...]:
    """Return the attention that each head with paths pays by itself along its paths, with all heads below replaced.

    It is split by the labels of the main group at the path's target, where the path holds.
    """
    roles = examples.roles
    paths = _paths(circuit)
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
    with model.hooks(fwd_hooks=hooks), ablating(model, circuit, examples.roles):
        run(model, examples)
    example = torch.arange(len(examples), device=examples.inputs.device)[:, None, None]
    at = examples.roles.positions.transpose(1, 2)
    for path in paths:
        yield path, seen[path.head.layer][example, path.head.index, examples.roles[path.source][..., None], at]


def _split(
    circuit: Circuit, path: AttentionPath, roles: Any, attention: Float[Tensor, "example instance role"]
) -> Iterable[OwnAttention]:
    """Yield the attention for every label that the path covers."""
    there = circuit.heads[path.head].holds(path.source, path.target, roles)
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

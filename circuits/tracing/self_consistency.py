"""Self-consistency: do the heads of a circuit look where the circuit says, once the circuit has replaced the others?

In a validation the circuit says where heads look. Here each head with paths between roles is intact and looks
for itself, in the residual stream that the replaced heads below it have made. A path is self-consistent if the head
pays it at least ``attended`` attention, for every label of the task's main group that its condition covers. A head is
self-consistent if all its paths are, and the loss with this head alone intact is below the threshold. A circuit is
self-consistent if all its heads with paths are, and the loss with all of them intact at once is below the threshold.
If the task gives the losses of every instance, they must be below it for every label as well.
Within three standard errors of its threshold, a number is undecided.

A head that is not self-consistent misses something that a replaced head below it writes. Each head below is therefore
left intact as well, one at a time. If this makes the head self-consistent, an edge from the lower to the upper head is
missing: the mechanism of the lower head leaves out what the upper head needs. The same is asked of all heads with paths
at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from circuits.ablation import ablating
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.given import stream_seed
from circuits.losses.by_label import ByLabel, losses_by_label
from circuits.losses.loss import Loss, Mean, per_example
from circuits.losses.sample import Sample
from circuits.losses.sequential_test import SequentialTest
from circuits.model.layers import pattern_hook
from circuits.model.transformer import Transformer, run, sequences_at_once
from circuits.results import Decision, Number, Result, Verdict, together
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples, Task
from circuits.tracing.edges import role_paths
from circuits.tracing.numbers import above, below
from circuits.utils.progress import part_of, shown


class PathAttention(Result):
    """A head's own attention along a path, on the instances with one label.

    Attributes:
        path: the path.
        label: the label of the main group at the path's target; None if the task has no group.
        attention: the attention on the target.
        others: the average attention on every other role of the instance, and ``elsewhere``.
    """

    path: AttentionPath
    label: int | None
    attention: Mean
    others: dict[str, Number]

    @property
    def decision(self) -> Decision:
        """Whether the attention is enough; undecided within three standard errors."""
        return above(self.attention, current().attended)


class HeadConsistency(Result):
    """One head with paths, intact among replaced heads.

    Attributes:
        head: the head.
        decision: whether the head is self-consistent.
        loss: the loss with this head intact and all other heads of the circuit replaced.
        by_label: the loss for each label at the role with the highest; None if the task does not split its losses.
        along: the head's own attention along each path, label by label.
        restored_by: for a head that is not self-consistent, the lower heads, each of which makes it self-consistent if
            it is intact as well, with the loss.
    """

    head: Head
    decision: Decision
    loss: Loss
    by_label: ByLabel | None
    along: tuple[PathAttention, ...]
    restored_by: dict[Head, Loss] = Field(default_factory=dict)


class SelfConsistency(Result):
    """The heads with paths of a circuit, each by itself and all at once.

    Attributes:
        verdict: whether the circuit is self-consistent.
        heads: every head with paths, from the lowest layer up.
        unablated: the loss of the unablated model.
        combined: the loss with all heads of the circuit replaced.
        intact: the loss with all heads with paths intact, and all other heads of the circuit replaced.
        by_label: ``intact`` for each label at the role with the highest; None if the task does not split its losses.
        threshold: a loss below it counts as low.
        group: the task's main group, by whose labels attention and losses are split.
        unnamed: the number of heads below the highest head with paths that the circuit does not name, and that stay
            intact. With any, nothing is shown to hold.
        restored_by: if ``intact`` is not low, the other heads below the highest head with paths, each of which makes it
            low if it is intact as well, with the loss.
    """

    verdict: Verdict
    heads: tuple[HeadConsistency, ...]
    unablated: Loss
    combined: Loss
    intact: Loss
    by_label: ByLabel | None
    threshold: float
    group: str | None
    unnamed: int
    restored_by: dict[Head, Loss]


@entrance
def self_consistency(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    n_examples: int = 512,
    seed: int = 0,
    threshold: float = 0.05,
) -> SelfConsistency:
    """Let the heads with paths of a circuit look for themselves among replaced heads.

    Args:
        model: any HookedTransformer or TransformerBridge without padding.
        task: the model's task; all examples have the same length.
        circuit: the circuit. Heads that it does not name are intact throughout; if there are any below a head with
            paths, the circuit is undecided at best.
        n_examples: the number of examples.
        seed: the seed of the examples.
        threshold: a loss below it counts as low; the paper uses 0.05.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or has no path between roles; or a number is out
            of range.
    """
    sample = Sample(task, n_examples, stream_seed(seed, "self-consistency"), next(model.parameters()).device)
    test, content, examples = SequentialTest(model, task, sample, threshold), heads_with_paths(circuit), sample.first
    without = circuit.without_heads(content)
    with shown(None, "self-consistency") as progress:
        unablated, combined, intact = test.measure([Circuit(), circuit, without], progress=part_of(progress, 0.0, 0.4))
        (by_label,) = losses_by_label(model, task, examples, [without], _named(circuit))
        heads = consistency(test, examples, circuit, content)
        progress(0.6)
        for index, head in enumerate(heads):
            if head.decision != "holds":
                restored = dict(restoring(test, examples, circuit, [head.head]))
                heads[index] = head.model_copy(update={"restored_by": restored})
        all_low = low(intact, by_label, threshold)
        restored = {} if all_low == "holds" else dict(restoring(test, examples, circuit, content))
    lower, n_heads = range(content[-1].layer), model.cfg.n_heads
    unnamed = sum(Head(layer, index) not in circuit.heads for layer in lower for index in range(n_heads))
    decision = together([all_low, *(head.decision for head in heads)])
    decision = "undecided" if unnamed and decision == "holds" else decision
    highest = f" (up to {by_label.highest:.4f} by {by_label.group} of {by_label.role})" if by_label else ""
    said = f"With all heads with paths intact the loss is {intact}{highest}, with all heads replaced {combined}"
    said += f"; lower heads that the circuit does not name, and that stay intact: {unnamed}" if unnamed else ""
    said += "".join(f"; {one.head} by itself {one.decision}" for one in heads if one.decision != "holds")
    back = {**restored, **{head: loss for one in heads for head, loss in one.restored_by.items()}}
    said += f"; restored with {' or '.join(map(str, back))} intact as well" if back else ""
    return SelfConsistency(
        verdict=Verdict(name="self-consistent", decision=decision, sentence=f"{said}."),
        heads=tuple(heads),
        unablated=unablated,
        combined=combined,
        intact=intact,
        by_label=by_label,
        threshold=threshold,
        group=sample.roles.main_group,
        unnamed=unnamed,
        restored_by=restored,
    )


def heads_with_paths(circuit: Circuit) -> tuple[Head, ...]:
    """Return the heads with paths between roles, from the lowest layer up.

    Raises:
        BadInput: there is none.
    """
    return tuple(dict.fromkeys(path.head for path in role_paths(circuit)))


def _named(circuit: Circuit) -> set[str]:
    """Return the roles at the ends of a circuit's paths."""
    return {role for path in role_paths(circuit) for role in (path.source, path.target)}


def low(loss: Loss, by_label: ByLabel | None, threshold: float) -> Decision:
    """Return whether a loss is below the threshold, on average and, if it is split, for every label."""
    means: list[Loss | Mean] = [loss, *(by_label.means.values() if by_label else ())]
    return together(below(one, threshold) for one in means)


def consistency(
    test: SequentialTest, examples: Examples, circuit: Circuit, heads: Sequence[Head]
) -> list[HeadConsistency]:
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
    attention = path_attention(test.model, circuit, examples)
    result = []
    for head, loss, by_label in zip(heads, losses, splits, strict=True):
        along = tuple(one for one in attention if one.path.head == head)
        decision = together([low(loss, by_label, test.threshold), *(one.decision for one in along)])
        result.append(HeadConsistency(head=head, decision=decision, loss=loss, by_label=by_label, along=along))
    return result


def are_self_consistent(test: SequentialTest, examples: Examples, circuit: Circuit, intact: Sequence[Head]) -> bool:
    """Whether heads with paths, intact at once, keep the loss low; a single one must also look where it should."""
    if len(intact) == 1:
        return consistency(test, examples, circuit, intact)[0].decision == "holds"
    without = circuit.without_heads(intact)
    tested = test.test_one(without)
    return tested.decision == "below" and all(
        low(tested.loss, by_label, test.threshold) == "holds"
        for by_label in losses_by_label(test.model, test.task, examples, [without])
    )


def restoring(
    test: SequentialTest, examples: Examples, circuit: Circuit, intact: Sequence[Head]
) -> Iterator[tuple[Head, Loss]]:
    """Yield the heads below, each of which makes heads with paths self-consistent if it is intact as well; best first.

    The loss is that with this head and the heads with paths intact.
    """
    lower = [head for head in circuit.heads if head.layer < intact[-1].layer and head not in intact]
    tested = test.test({head: circuit.without_heads([head, *intact]) for head in lower})
    for head in sorted(lower, key=lambda head: tested[head].loss.mean):
        low_too = tested[head].decision == "below"
        if low_too and are_self_consistent(test, examples, circuit.without_heads([head]), intact):
            yield head, tested[head].loss


@torch.no_grad()
def path_attention(model: Transformer, circuit: Circuit, examples: Examples) -> list[PathAttention]:
    """Return the attention that each head with paths pays by itself along its paths, with all heads below replaced.

    It is split by the labels of the main group at the path's target, where the path holds.
    """
    roles, paths = examples.roles, role_paths(circuit)
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    batches = [examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once)]
    parts = [_on_roles(model, circuit, batch, paths) for batch in batches]
    attention = map(torch.cat, zip(*parts, strict=True))
    return [one for path, on in zip(paths, attention, strict=True) for one in _by_label(circuit, path, roles, on)]


def _on_roles(
    model: Transformer, circuit: Circuit, examples: Examples, paths: Collection[AttentionPath]
) -> list[Float[Tensor, "example instance role"]]:
    """Return for every path the head's own attention from the source to each role of the instance."""
    seen: dict[int, Tensor] = {}

    def see(pattern: Tensor, hook: torch.nn.Module, layer: int) -> Tensor:
        seen[layer] = pattern  # before it is replaced: the hook of the ablation is called later
        return pattern

    hooks = [(pattern_hook(layer), partial(see, layer=layer)) for layer in {path.head.layer for path in paths}]
    with model.hooks(fwd_hooks=hooks), ablating(model, circuit, examples.roles):
        run(model, examples)
    example = torch.arange(len(examples), device=examples.inputs.device)[:, None, None]
    to, sources = examples.roles.positions.transpose(1, 2), [examples.roles[path.source][..., None] for path in paths]
    each = zip(paths, sources, strict=True)
    return [seen[path.head.layer][example, path.head.index, source, to] for path, source in each]


def _by_label(
    circuit: Circuit, path: AttentionPath, roles: Roles, attention: Float[Tensor, "example instance role"]
) -> Iterable[PathAttention]:
    """Yield the attention for every label that the path covers."""
    there = circuit.heads[path.head].holds(path.source, path.target, roles)
    group = roles.main_group
    labels = roles.group(group, path.target) if group else torch.zeros_like(roles[path.target])
    here = roles.positions.transpose(1, 2) == roles[path.target][..., None]  # roles that stand at the target
    here[..., roles.names.index(path.target)] = False
    attention = attention.masked_fill(here, 0.0)
    for label in labels[there].unique().tolist() or [None]:  # a path that holds nowhere is undecided
        holds = there if label is None else there & (labels == label)
        each = per_example(attention.permute(2, 0, 1), holds.float())  # [role, example]
        on = dict(zip(roles.names, each, strict=True))
        others = {role: Mean.of(on[role]).mean for role in roles.distinct if role != path.target}
        target = Mean.of(on[path.target])
        others["elsewhere"] = max(0.0, 1.0 - target.mean - sum(others.values()))  # other instances, and no role
        yield PathAttention(path=path, label=label if group else None, attention=target, others=others)

"""Self-consistency: do the heads of a circuit look where the circuit says, once the circuit has replaced the others?

Elsewhere the circuit says where heads look. Here each head with paths between roles is intact and looks for itself, in
the residual stream that the replaced heads below it have made. A row to a fixed position that holds on some instances
only counts as a path: whatever its words, the head must tell the instances apart. A path is self-consistent if its
target gets more attention than any other position in most instances, for every label of the task's main group that its
condition covers: with less than half of the attention, too, because an MLP may take what it has most of. A soft head
must give a target at least half of the path's weight on average. A head is self-consistent if all its paths are, and
the loss with this head alone intact is low. A circuit is self-consistent if all its heads with paths are, and the loss
with all of them intact at once is low. If the task gives the losses of every instance, they must be low for every label
as well. So a missing path to a key or a query is seen (K- and Q-composition), which costs nothing while attention is
replaced.

A head that is not self-consistent misses something that a replaced head below it writes. Each head below is therefore
left intact as well, one at a time. If this makes the head self-consistent, an edge from the lower to the upper head is
missing: the mechanism of the lower head leaves out what the upper head needs. The same is asked of all heads at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from circuits.ablation import run_replaced
from circuits.averages import Averages
from circuits.checks.experiment import DECISIONS, Experiment, listed
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.losses.by_label import ByLabel
from circuits.losses.excess_by_label import excess_by_label
from circuits.losses.loss import Mean, per_example
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.one_hot import POSITION, OneHot, is_role, place_of
from circuits.mechanisms.soft import Soft
from circuits.model.layers import pattern_hook
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.results import Decision, Number, Result, Verdict, together
from circuits.roles import Roles
from circuits.settings import current, has_many_heads
from circuits.task import Examples, Task

TARGET, MOST = "target", "most"  # beside the roles: the attention on the target, and whether it gets most
RESTORING = 3  # lower heads that are tried for each head that is not self-consistent


class PathAttention(Result):
    """A head's own attention along a path, on the instances with one label.

    Attributes:
        path: the path.
        label: the label of the main group at the path's target; None if the task has no group.
        attention: the attention on the target.
        others: the average attention on every other role of the instance, and ``elsewhere``.
        most: the share of the instances in which no other position gets as much attention as the target; of a soft head
            the attention as a share of the path's weight, at most 1.
        decision: whether these are most instances.
    """

    path: AttentionPath
    label: int | None
    attention: Mean
    others: dict[str, Number]
    most: Mean
    decision: Decision

    def said(self, group: str | None) -> str:
        """Return the path without its head, the label and the share: ``query -> pair1.second on slot 2: 0.31``."""
        where = "" if self.label is None else f" on {group} {self.label}"
        return f"{self.path.source} -> {self.path.target}{where}: {self.most.mean:.2f}"


class HeadConsistency(Result):
    """One head with paths, intact among replaced heads.

    Attributes:
        head: the head.
        decision: whether the head is self-consistent.
        loss: the loss with this head intact and all other heads of the circuit replaced.
        by_label: the excess for each label at the role with the highest; None if the task does not split its losses.
        along: the head's own attention along each path, label by label.
        restored_by: for a head that is not self-consistent, the lower heads, each of which makes it self-consistent if
            it is intact as well, with the loss.
    """

    head: Head
    decision: Decision
    loss: DecidedLoss
    by_label: ByLabel | None
    along: tuple[PathAttention, ...]
    restored_by: dict[Head, DecidedLoss] = Field(default_factory=dict)


class SelfConsistency(Result):
    """The heads with paths of a circuit, each by itself and all at once.

    Attributes:
        verdict: whether the circuit is self-consistent.
        heads: every head with paths, from the lowest layer up.
        intact: the loss with all heads with paths intact, and all other heads of the circuit replaced.
        by_label: its excess for each label at the role with the highest; None if the task does not split its losses.
        group: the task's main group, by whose labels attention and losses are split.
        unnamed: the number of heads below the highest head with paths that the circuit does not name, and that stay
            intact. With any, nothing is shown to hold.
        restored_by: if ``intact`` is not low, the other heads below the highest head with paths, each of which makes it
            low if it is intact as well, with the loss.
    """

    verdict: Verdict
    heads: tuple[HeadConsistency, ...]
    intact: DecidedLoss
    by_label: ByLabel | None
    group: str | None
    unnamed: int
    restored_by: dict[Head, DecidedLoss]


@entrance
def self_consistency(
    model: Transformer, task: Task, circuit: Circuit, *, n_examples: int = 1024, seed: int = 0, threshold: float = 0.05
) -> SelfConsistency:
    """Let the heads with paths of a circuit look for themselves among replaced heads.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task.
        circuit: the circuit. Heads that it does not name are intact throughout; if there are any below a head with
            paths, the circuit is undecided at best.
        n_examples: the number of examples; they are those of ``validate`` with the same seed.
        seed: the seed of the examples.
        threshold: an excess loss below this share of the range counts as low.

    Raises:
        BadInput: the circuit does not fit model or examples, or has no path between roles; a number is out of range.
    """
    heads_with_paths(circuit)  # raises if there is none
    return steering_itself(Experiment(model, task, circuit, n_examples=n_examples, seed=seed, threshold=threshold))


def steering_itself(experiment: Experiment) -> SelfConsistency:
    """Return whether the circuit of an experiment, which has a path between roles, is self-consistent."""
    test, circuit, model = experiment.test, experiment.circuit, experiment.model
    content, n = heads_with_paths(circuit), len(test.first) if experiment.many else experiment.n_examples
    without = circuit.without_heads(content)
    intact = test.test({None: without}, min_examples=n)[None]
    ((by_label, of_labels),) = excess_by_label(test, [without], _named(circuit))
    heads = consistency(test, circuit, content)
    for index, head in enumerate(heads):
        if not experiment.many and head.decision != "holds":
            restored = dict(restoring(test, circuit, [head.head]))
            heads[index] = head.model_copy(update={"restored_by": restored})
    all_low = together([DECISIONS[intact.decision], DECISIONS[of_labels]])
    restored = {} if all_low == "holds" or experiment.many else dict(restoring(test, circuit, content))
    lower, n_heads = range(content[-1].layer), model.cfg.n_heads
    unnamed = sum(Head(layer, index) not in circuit.heads for layer in lower for index in range(n_heads))
    decision = together([all_low, *(head.decision for head in heads)])
    decision = "undecided" if unnamed and decision == "holds" else decision
    said = f"With all heads with paths intact the loss is {intact.loss}: {experiment.excess(intact)}"
    said += f" ({_highest(by_label)})" if by_label else ""
    said += f"; lower heads that the circuit does not name, and that stay intact: {unnamed}" if unnamed else ""
    said += "".join(f"; {_fault(one, test)}" for one in heads if one.decision != "holds")
    back = {**restored, **{head: loss for one in heads for head, loss in one.restored_by.items()}}
    said += f"; restored with {' or '.join(map(str, back))} intact as well" if back else ""
    return SelfConsistency(
        verdict=Verdict(name="self-consistent", decision=decision, sentence=f"{said}."),
        heads=tuple(heads),
        intact=intact,
        by_label=by_label,
        group=test.roles.main_group,
        unnamed=unnamed,
        restored_by=restored,
    )


def _highest(split: ByLabel) -> str:
    return f"up to {split.highest:.4f} by {split.group} of {split.role}"


def _fault(one: HeadConsistency, test: SequentialTest) -> str:
    """Return what a head by itself does wrong, or may."""
    said = f"{one.head} by itself {one.decision}: {test.scale.share(one.loss.loss):.4f} of the range"
    said += f", {_highest(one.by_label)}" if one.by_label else ""
    astray = [way.said(test.roles.main_group) for way in one.along if way.decision != "holds"]
    return f"{said}; how often the target gets most attention: {listed(astray)}" if astray else said


def looks(circuit: Circuit) -> tuple[AttentionPath, ...]:
    """Return the paths between roles, and the rows to fixed positions of sources whose rows hold on some instances."""
    paths = [path for path in circuit.paths if path.joins_roles]
    for head, mechanism in circuit.heads.items():
        where = dict(mechanism.where)
        rows = mechanism.rows if isinstance(mechanism, OneHot) else ()
        some = [row for row in rows if POSITION.fullmatch(row[1]) and any(row[0] == source for source, _ in where)]
        paths += [AttentionPath(head, *row, where.get(row)) for row in some]
    return tuple(sorted(paths, key=lambda path: path.head))


def heads_with_paths(circuit: Circuit) -> tuple[Head, ...]:
    """Return the heads with paths between roles, or with such rows, from the lowest layer up; BadInput if none has."""
    if not (paths := looks(circuit)):
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    return tuple(dict.fromkeys(path.head for path in paths))


def _named(circuit: Circuit) -> set[str]:
    """Return the roles at the ends of a circuit's paths."""
    return {role for path in looks(circuit) for role in (path.source, path.target) if is_role(role)}


def consistency(test: SequentialTest, circuit: Circuit, heads: Sequence[Head]) -> list[HeadConsistency]:
    """Return what some heads with paths do, each of them intact alone, on all examples of a test."""
    intact = {head: circuit.without_heads([head]) for head in heads}
    n = len(test.first)
    losses = test.test(intact, min_examples=n, max_examples=n if has_many_heads(test.model.cfg) else None)
    splits = excess_by_label(test, [*intact.values()], _named(circuit))
    attention = path_attention(test, circuit, heads)
    result = []
    for head, (by_label, of_labels) in zip(heads, splits, strict=True):
        along = tuple(one for one in attention if one.path.head == head)
        low = [DECISIONS[losses[head].decision], DECISIONS[of_labels]]
        decision = together([*low, *(one.decision for one in along)])
        result.append(HeadConsistency(head=head, decision=decision, loss=losses[head], by_label=by_label, along=along))
    return result


def are_self_consistent(test: SequentialTest, circuit: Circuit, intact: Sequence[Head]) -> bool:
    """Whether heads with paths, intact at once, keep the loss low; a single one must also look where it should."""
    if len(intact) == 1:
        return consistency(test, circuit, intact)[0].decision == "holds"
    without = circuit.without_heads(intact)
    low = test.test_one(without).decision == "below"
    return low and all(decision == "below" for _, decision in excess_by_label(test, [without]))


def restoring(test: SequentialTest, circuit: Circuit, intact: Sequence[Head]) -> Iterator[tuple[Head, DecidedLoss]]:
    """Yield heads below, each of which makes heads with paths self-consistent if it is intact as well; best first.

    The loss is that with this head and the heads with paths intact. Only the ``RESTORING`` best are tried.
    """
    lower = [head for head in circuit.heads if head.layer < intact[-1].layer and head not in intact]
    tested = test.test({head: circuit.without_heads([head, *intact]) for head in lower})
    low = [head for head in lower if tested[head].decision == "below"]
    for head in sorted(low, key=lambda head: tested[head].loss.mean)[:RESTORING]:
        if are_self_consistent(test, circuit.without_heads([head]), intact):
            yield head, tested[head]


@torch.no_grad()
def path_attention(test: SequentialTest, circuit: Circuit, heads: Collection[Head]) -> list[PathAttention]:
    """Return the attention that each of some heads pays by itself along its paths, with all heads below replaced.

    It is split by the labels of the main group at the path's target, where the path holds.
    """
    examples, model = test.first, test.model
    paths = [path for path in looks(circuit) if path.head in heads]
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    batches = [examples.take(slice(start, start + at_once)) for start in range(0, len(examples), at_once)]
    parts = [_on_roles(model, circuit, batch, paths, test.averages) for batch in batches]
    each = zip(paths, map(torch.cat, zip(*parts, strict=True)), strict=True)
    along = [one for path, on in each for one in _by_label(circuit, path, examples.roles, on)]
    decisions: dict[str, Decision] = {"below": "fails", "above": "holds", "undecided": "undecided"}
    found = []
    for path, label, on in along:
        most = on.pop(MOST)
        side = test.decide(most, current().carries, below_of=len(along))
        means = {role: Mean.of(attention) for role, attention in on.items()}
        target, others = means.pop(TARGET), {role: other.mean for role, other in means.items()}
        others["elsewhere"] = max(0.0, 1.0 - target.mean - sum(others.values()))  # other instances, and no role
        one = PathAttention(
            path=path, label=label, attention=target, others=others, most=Mean.of(most), decision=decisions[side]
        )
        found.append(one)
    return found


def _on_roles(
    model: Transformer,
    circuit: Circuit,
    examples: Examples,
    paths: Collection[AttentionPath],
    averages: Averages | None,
) -> list[Float[Tensor, "example instance role"]]:
    """Return for every path the head's own attention from the source to each role of the instance, and to the target.

    The last number is 1 if no other position gets as much as the target, and else 0.
    """
    seen: dict[int, Tensor] = {}

    def see(pattern: Tensor, hook: torch.nn.Module, layer: int) -> Tensor:
        seen[layer] = pattern  # before it is replaced: the hook of the ablation is called later
        return pattern

    hooks = [(pattern_hook(layer), partial(see, layer=layer)) for layer in {path.head.layer for path in paths}]
    below = circuit.up_to(max(path.head.layer for path in paths))
    with model.hooks(fwd_hooks=hooks):
        run_replaced(model, below, examples, averages)
    example = torch.arange(len(examples), device=examples.inputs.device)[:, None, None]
    to, found = examples.roles.positions.transpose(1, 2), []
    for path in paths:
        rows = seen[path.head.layer][example[..., 0], path.head.index, examples.roles[path.source]]  # [..., key]
        target = place_of(path.target, examples.roles)[..., None]
        others = rows.scatter(2, target, 0.0).amax(dim=2, keepdim=True)
        most = (rows.gather(2, target) > others).to(rows.dtype)
        if isinstance(kind := circuit.heads[path.head], Soft):
            most = (rows.gather(2, target) / dict(kind.weights)[path.source, path.target]).clamp(max=1)
        found.append(torch.cat([rows.gather(2, to), rows.gather(2, target), most], dim=2))
    return found


def _by_label(
    circuit: Circuit, path: AttentionPath, roles: Roles, attention: Float[Tensor, "example instance role"]
) -> Iterable[tuple[AttentionPath, int | None, dict[str, Float[Tensor, " example"]]]]:
    """Yield the attention to every role for every label that the path covers; NaN in an example without it."""
    there = circuit.heads[path.head].holds(path.source, path.target, roles)
    read_at = path.condition.at if path.condition else path.source  # of a row to a fixed position
    group, at = roles.main_group, path.target if is_role(path.target) else read_at
    labels = roles.group(group, at) if group else torch.zeros_like(roles[at])
    here = roles.positions.transpose(1, 2) == place_of(path.target, roles)[..., None]  # roles that stand at the target
    attention = torch.cat([attention[..., :-2].masked_fill(here, 0.0), attention[..., -2:]], dim=2)
    for label in labels[there].unique().tolist() or [None]:  # a path that holds nowhere is undecided
        holds = there if label is None else there & (labels == label)
        each = per_example(attention.permute(2, 0, 1), holds.float())  # [role, example]
        on = dict(zip((*roles.names, TARGET, MOST), each, strict=True))
        others = [role for role in roles.distinct if role != path.target]
        yield path, label if group else None, {role: on[role] for role in (TARGET, *others, MOST)}

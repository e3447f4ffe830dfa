"""Self-consistency: do the heads of a circuit look where the circuit says, once the circuit has replaced the others?

A validated circuit is told where to look. Here each content head (a head with paths between roles) is intact and looks
for itself, in the residual stream that the replaced heads below it have made. A path is self-consistent if the head
pays it at least ``ENOUGH`` attention, for every label of the problem's main group that its condition covers. A head is
self-consistent if all its paths are, and the loss with this head alone intact is below the threshold. A circuit is
self-consistent if all its content heads are, and the loss with all of them intact at once is below the threshold.
Within three standard errors of its threshold, a number is undecided.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer
from transformer_lens.hook_points import HookPoint

from circuits.ablation.hooks import ablated
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.composition.mean import Mean, per_example
from circuits.errors import BadInput
from circuits.losses.loss import Loss
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.one_hot import OneHot
from circuits.model.batching import sequences_at_once
from circuits.model.patterns import pattern_hook
from circuits.problem import Examples, Problem
from circuits.utils.progress import Progress, part_of, shown

ENOUGH = 0.5  # attention along a path, as where a path is taken as emerged (paper, section 9.2)
ELSEWHERE = "elsewhere"  # other instances, and positions without a role
Decision = Literal["holds", "fails", "undecided"]


@dataclass(frozen=True)
class OwnAttention:
    """A head's own attention along a path, on the instances with one label.

    Attributes:
        path: the path.
        label: the label of the main group at the path's target; None if the problem has no group.
        attention: the attention on the target.
        others: the average attention on every other role of the instance, and ``elsewhere``.
    """

    path: AttentionPath
    label: int | None
    attention: Mean
    others: Mapping[str, float]

    @property
    def decision(self) -> Decision:
        """Whether the attention is enough; undecided within three standard errors."""
        return _decided(self.attention.mean >= ENOUGH, self.attention.near(ENOUGH))

    @property
    def instead(self) -> str:
        """Where the head looks most, besides the path's target."""
        return max(self.others, key=lambda role: self.others[role])


@dataclass(frozen=True)
class HeadConsistency:
    """One content head, intact among replaced heads.

    Attributes:
        head: the head.
        loss: the loss with this head intact and all other heads of the circuit replaced.
        threshold: a loss below it counts as low.
        attention: the head's own attention along each path, label by label.
    """

    head: Head
    loss: Loss
    threshold: float
    attention: tuple[OwnAttention, ...]

    @property
    def decision(self) -> Decision:
        """Whether the head is self-consistent."""
        return _together([_below(self.loss, self.threshold), *(own.decision for own in self.attention)])

    def lowest(self, path: AttentionPath) -> OwnAttention:
        """Return the label with the lowest attention along a path."""
        return min((own for own in self.attention if own.path == path), key=lambda own: own.attention.mean)

    def sentence(self, group: str | None) -> str:
        """Return what the head does by itself, in words."""
        begin = {"holds": "is self-consistent", "fails": "is not self-consistent", "undecided": "is undecided"}
        loss = f"with it intact the loss is {self.loss} (threshold {self.threshold:.3g})"
        said = [
            f"{own.path.source} pays {own.attention.mean:.2f} to {own.path.target}{_on(group, own.label)}, and "
            f"{own.others[own.instead]:.2f} to {own.instead}"
            for own in self.attention
            if own.decision != "holds"
        ]
        looks = f"; by itself {'; '.join(said)}" if said else ""
        return f"{self.head} {begin[self.decision]}: {loss}{looks}."


@dataclass(frozen=True)
class SelfConsistency:
    """The content heads of a circuit, each by itself and all at once.

    Attributes:
        heads: every content head, from the lowest layer up.
        unablated: the loss of the unablated model.
        combined: the loss with all heads of the circuit replaced.
        intact: the loss with all content heads intact, and all other heads of the circuit replaced.
        threshold: a loss below it counts as low.
        group: the problem's main group, by whose labels attention is split.
    """

    heads: tuple[HeadConsistency, ...]
    unablated: Loss
    combined: Loss
    intact: Loss
    threshold: float
    group: str | None

    @property
    def decision(self) -> Decision:
        """Whether the circuit is self-consistent."""
        return _together([_below(self.intact, self.threshold), *(head.decision for head in self.heads)])

    def sentences(self) -> tuple[str, ...]:
        """Return one sentence for the circuit, and one for every content head."""
        begin = {"holds": "is self-consistent", "fails": "is not self-consistent", "undecided": "is undecided"}
        loss = f"with all {len(self.heads)} content heads intact the loss is {self.intact}, replaced {self.combined}"
        return (
            f"The circuit {begin[self.decision]}: {loss}.",
            *(head.sentence(self.group) for head in self.heads),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts."""
        return {
            "decision": self.decision,
            "threshold": self.threshold,
            "unablated": self.unablated.to_json(),
            "combined": self.combined.to_json(),
            "content_intact": self.intact.to_json(),
            "group": self.group,
            "heads": {
                str(one.head): {
                    "decision": one.decision,
                    "loss": one.loss.to_json(),
                    "attention": [
                        {
                            "path": str(own.path),
                            "label": own.label,
                            **own.attention.to_json(),
                            "decision": own.decision,
                            "others": dict(own.others),
                        }
                        for own in one.attention
                    ],
                }
                for one in self.heads
            },
        }


def self_consistency(
    model: HookedTransformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 512,
    seed: int = 0,
    threshold: float = 0.05,
    progress: Progress | None = None,
) -> SelfConsistency:
    """Let the content heads of a circuit look for themselves among replaced heads.

    Args:
        model: any HookedTransformer without padding.
        problem: the model's task; all examples have the same length.
        circuit: the circuit; heads that it does not name are intact throughout.
        n_examples: the number of examples.
        seed: the seed of the examples.
        threshold: a loss below it counts as low; the paper uses 0.05.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or has no path between roles; or a number is out
            of range.
    """
    content = tuple(head for head, mechanism in circuit.heads.items() if isinstance(mechanism, OneHot))
    content = tuple(head for head in content if head in circuit.useful_heads)
    if not content:
        raise BadInput("the circuit has no path between roles; expected a one-hot head")
    sample = Sample(problem, n_examples, stream_seed(seed, "self-consistency"), next(model.parameters()).device)
    test = SequentialTest(model, problem, sample, threshold)
    with shown(progress, "self-consistency") as progress:
        circuits = [Circuit(), circuit, *(circuit.without_heads(heads) for heads in (content, *zip(content)))]
        unablated, combined, intact, *alone = test.measure(circuits, progress=part_of(progress, 0.0, 0.8))
        own = own_attention(model, circuit, sample.first)
        progress(1.0)
    heads = tuple(
        HeadConsistency(head, loss, threshold, tuple(one for one in own if one.path.head == head))
        for head, loss in zip(content, alone, strict=True)
    )
    return SelfConsistency(heads, unablated, combined, intact, threshold, sample.roles.main_group)


@torch.no_grad()
def own_attention(model: HookedTransformer, circuit: Circuit, examples: Examples) -> tuple[OwnAttention, ...]:
    """Return the attention that each content head pays by itself along its paths, with all heads below replaced.

    It is split by the labels of the main group at the path's target, where the path holds.
    """
    roles = examples.roles
    paths = [path for path in circuit.paths if isinstance(circuit.heads[path.head], OneHot)]
    parts: dict[AttentionPath, list[Tensor]] = {path: [] for path in paths}
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    for start in range(0, len(examples), at_once):
        for path, attention in _on_roles(model, circuit, examples.take(slice(start, start + at_once)), paths):
            parts[path].append(attention)
    return tuple(one for path in paths for one in _split(circuit, path, roles, torch.cat(parts[path])))


def _on_roles(
    model: HookedTransformer, circuit: Circuit, examples: Examples, paths: Iterable[AttentionPath]
) -> Iterable[tuple[AttentionPath, Float[Tensor, "example instance role"]]]:
    """Yield for every path the head's own attention from the source to each role of the instance."""
    seen: dict[int, Tensor] = {}

    def see(pattern: Tensor, hook: HookPoint, layer: int) -> Tensor:
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
    for label in labels[there].unique().tolist():
        each = per_example(attention.permute(2, 0, 1), (there & (labels == label)).float())  # [role, example]
        on = dict(zip(roles.names, each, strict=True))
        others = {role: Mean.of(on[role]).mean for role in roles.distinct if role != path.target}
        target = Mean.of(on[path.target])
        others[ELSEWHERE] = max(0.0, 1.0 - target.mean - sum(others.values()))
        yield OwnAttention(path, label if group else None, target, others)


def _below(loss: Loss, threshold: float) -> Decision:
    return _decided(loss.mean < threshold, loss.near(threshold))


def _decided(right: bool, near: bool) -> Decision:
    return "undecided" if near else "holds" if right else "fails"


def _together(decisions: Iterable[Decision]) -> Decision:
    """Return ``fails`` if one fails, else ``undecided`` if one is undecided."""
    found = {*decisions}
    return "fails" if "fails" in found else "undecided" if "undecided" in found else "holds"


def _on(group: str | None, label: int | None) -> str:
    return "" if label is None else f" on {group} {label}"

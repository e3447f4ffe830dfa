"""Every head of a transformer replaced, as its attention shows it: no search over mechanisms.

Positional heads have their average pattern. Content heads have one-hot paths, each on those chains where the attention
along it is near 1; all other rows are the head's average where no path is on. Then heads and paths are changed only
where the loss asks for it: a head whose average does too much harm gets its paths, and paths that nothing needs go.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.attention import attention_by_group, attention_patterns
from circuits.circuit import Circuit, Head
from circuits.content import ContentOrPosition, content_or_position, mean_examples
from circuits.evaluation import sequences_at_once
from circuits.judge import Judge
from circuits.loss import SURE, Loss
from circuits.mechanisms import Condition, Fixed, OneHot
from circuits.problem import Examples, Problem
from circuits.roles import Roles
from circuits.sample import Sample, stream_seed

ON = 0.5  # average attention along a path, on the chains of one label, from which on it is there


@dataclass(frozen=True)
class Replacement:
    """A circuit that says what every head does, and what it costs.

    Attributes:
        circuit: a mechanism for every head.
        heads: which heads look at content.
        full: the model's own loss, and
        combined: that with every head replaced, both on examples that nothing was chosen on.
        n_evaluations: sequences that were run to choose it.
    """

    circuit: Circuit
    heads: ContentOrPosition
    full: Loss
    combined: Loss
    n_evaluations: int

    @property
    def explains(self) -> bool:
        """Whether the loss is at most twice the model's own, plus 0.005, and the model's own below the threshold."""
        return self.full.mean < self.heads.threshold and self.combined.mean <= allowed(self.full)

    def kind(self, head: Head) -> str:
        """What is said of a head, in a word: ``content`` where it has paths, else ``position``."""
        return "content" if isinstance(self.circuit.heads[head], OneHot) else "position"

    def to_json(self) -> dict[str, Any]:
        """As plain numbers and texts: every head, and the losses."""
        return {
            "explains": self.explains,
            "loss": {"full": self.full.to_json(), "combined": self.combined.to_json(), "allowed": allowed(self.full)},
            "heads": {
                str(head): {"kind": self.kind(head), "mean_alone": loss.to_json(), "paths": self.paths(head)}
                for head, loss in self.heads.alone.items()
            },
            "content_intact": {
                "heads": [*map(str, self.heads.content)],
                "loss": self.heads.together.to_json(),
            },
            "evaluations": self.n_evaluations,
        }

    def paths(self, head: Head) -> list[str]:
        """The paths of a head, each with the chains on which it is there."""
        mechanism = self.circuit.heads[head]
        return mechanism.said_rows if isinstance(mechanism, OneHot) else []


def allowed(full: Loss) -> float:
    """How high the loss may be for a replacement to explain a model: twice its own, plus 0.005."""
    return 2 * full.mean + 0.005


def replace_all(
    model: HookedTransformer,
    problem: Problem,
    *,
    n_examples: int = 1024,
    threshold: float = 0.05,
    seed: int = 0,
    progress: Callable[[float], None] = lambda share: None,
) -> Replacement:
    """Replace every head by what its attention shows.

    Args:
        model: any HookedTransformer without padding.
        problem: its task; all examples have the same length. Paths may be there on some chains only, by the first group
            that it offers, or by position.
        n_examples: that the losses are measured on in the end; a quarter as many, others, serve to choose.
        threshold: a loss below it counts as low where heads are told apart.
        seed: of the examples; those for averages, for choosing and for the losses in the end have nothing in common.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: a number is out of range.
    """
    few = max(2, n_examples // 4)
    heads = content_or_position(
        model, problem, n_examples=few, threshold=threshold, seed=seed, progress=lambda share: progress(0.4 * share)
    )
    device = next(model.parameters()).device
    parts = Parts(model, mean_examples(model, problem, seed), heads)
    judge = Judge(model, problem, Sample(problem, few, stream_seed(seed, "replacement"), device), threshold)
    (full,) = judge.measure([Circuit()])
    chosen = {head: parts.rows[head] for head in heads.content}
    chosen, loss = _grown(judge, parts, chosen, allowed(full))
    progress(0.7)
    circuit = _pruned(judge, parts, chosen, max(loss.mean, allowed(full)))
    progress(0.9)
    fresh = Judge(model, problem, Sample(problem, n_examples, stream_seed(seed, "test"), device), threshold)
    full, combined = fresh.measure([Circuit(), circuit])
    progress(1.0)
    return Replacement(circuit, heads, full, combined, judge.n_evaluations)


@dataclass(frozen=True)
class Row:
    """The chains on which a path of a head is there, and the head's attention from its role on those.

    Attributes:
        condition: on which chains; None for all.
        total: attention of the role's positions, summed over the examples in which the path is on there.
        times: how often it is on, by position.
    """

    condition: Condition | None
    total: Float[Tensor, "query key"]
    times: Float[Tensor, " query"]


Rows = dict[tuple[str, str], Row]  # by the roles at its ends


class Parts:
    """What circuits are put together from: every head's average, and its paths as its attention shows them."""

    def __init__(self, model: HookedTransformer, examples: Examples, heads: ContentOrPosition) -> None:
        self.heads, self.roles, self.n = heads, examples.roles, len(examples)
        group = next(iter(examples.roles.groups), "position")
        seen = attention_by_group(model, examples, group)
        conditions = {head: self._conditions(seen[head.layer, head.head], group) for head in heads.means}
        self.rows: dict[Head, Rows] = {head: {} for head in heads.means}
        n_positions = examples.inputs.shape[1]
        at_once = sequences_at_once(model.cfg.n_heads, n_positions)
        for head, found in conditions.items():
            for ends, condition in found.items():
                total, times = torch.zeros(n_positions, n_positions), torch.zeros(n_positions)
                self.rows[head][ends] = Row(condition, total, times)
        for start in range(0, len(examples), at_once):
            batch = examples.take(slice(start, start + at_once))
            for layer, pattern in attention_patterns(model, batch):
                for head in (head for head in heads.means if head.layer == layer):
                    for (source, _), row in self.rows[head].items():
                        example, chain = _there(row.condition, batch.roles, source).nonzero(as_tuple=True)
                        place = batch.roles[source][example, chain]
                        row.total.index_add_(0, place.cpu(), pattern[example, head.head, place].float().cpu())
                        row.times.index_add_(0, place.cpu(), torch.ones(len(place)))

    def _conditions(
        self, seen: Float[Tensor, "query_role key_role label"], group: str
    ) -> dict[tuple[str, str], Condition | None]:
        """The paths that are on somewhere, and on which chains (None: all); of two on the same ones the stronger."""
        names, found = self.roles.names, {}
        strength: dict[tuple[str, str], float] = {}
        for source, target in self.roles.pairs:
            by_label = seen[names.index(source), names.index(target)].tolist()
            labels = [label for label, attention in enumerate(by_label) if attention == attention]  # NaN: none there
            on = [label for label in labels if by_label[label] > ON]
            if on:
                found[source, target] = None if on == labels else Condition(group, target, tuple(on))
                strength[source, target] = sum(by_label[label] for label in on)
        taken: dict[str, Tensor] = {}
        kept = {}
        for source, target in sorted(found, key=lambda ends: -strength[ends]):
            there = _there(found[source, target], self.roles, source)
            if source not in taken or not (taken[source] & there).any():
                kept[source, target] = found[source, target]
                taken[source] = taken.get(source, there) | there
        return kept

    def circuit(self, chosen: dict[Head, Rows]) -> Circuit:
        """Every head with the chosen paths, and its average where none of them is on."""
        return Circuit({head: self._mechanism(head, chosen.get(head, {})) for head in self.heads.means})

    def _mechanism(self, head: Head, rows: Rows) -> Fixed | OneHot:
        mean = self.heads.means[head]
        if not rows:
            return mean
        total = self.n * mean.weights - sum((row.total for row in rows.values()), torch.zeros(()))
        times = self.n - sum((row.times for row in rows.values()), torch.zeros(()))
        rest = torch.where(times[:, None] > 0.5, total / times.clamp(min=1)[:, None], mean.weights)
        where = {ends: row.condition for ends, row in rows.items() if row.condition is not None}
        return OneHot([*rows], Fixed(rest.clamp(min=0), "mean"), where)


def _there(condition: Condition | None, roles: Roles, source: str) -> Bool[Tensor, "example chain"]:
    """On which chains a path from a role is there."""
    return condition.holds(roles) if condition else torch.ones_like(roles[source], dtype=torch.bool)


def _grown(judge: Judge, parts: Parts, chosen: dict[Head, Rows], enough: float) -> tuple[dict[Head, Rows], Loss]:
    """Give paths to further heads, that which lowers the loss most first, until it is low enough or none lowers it."""
    (loss,) = judge.measure([parts.circuit(chosen)])
    while loss.mean > enough:
        others = [head for head, rows in parts.rows.items() if rows and head not in chosen]
        ways = [{**chosen, head: parts.rows[head]} for head in others]
        circuits = [parts.circuit(way) for way in ways]
        losses = judge.measure(circuits)
        if not losses:
            break
        best = min(range(len(losses)), key=lambda place: losses[place].mean)
        gain = judge.difference(circuits[best], parts.circuit(chosen))
        if gain.mean > -SURE * gain.standard_error:
            break
        chosen, loss = ways[best], losses[best]
    return chosen, loss


def _pruned(judge: Judge, parts: Parts, chosen: dict[Head, Rows], enough: float) -> Circuit:
    """Take paths away, that which is missed least first, as long as the loss stays low enough."""
    while True:
        ways = [
            {**chosen, head: {other: row for other, row in rows.items() if other != ends}}
            for head, rows in chosen.items()
            for ends in rows
        ]
        losses = judge.measure([parts.circuit(way) for way in ways])
        best = min(range(len(losses)), key=lambda place: losses[place].mean, default=None)
        if best is None or losses[best].mean > enough:
            return parts.circuit(chosen)
        chosen = ways[best]

"""Compare a circuit with chance: with random circuits, with redundant paths, and by bootstrap intervals.

The tests follow Shi et al. 2024, *Hypothesis Testing the Circuit Hypothesis in LLMs*, with attention paths instead of
edges:

    faithfulness    the circuit's loss, compared with random circuits with as many paths in the same heads
    minimality      the cost of removing each path, compared with the cost of redundant paths; Holm's correction
    completeness    how much the loss falls when heads without a path are un-ablated
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.losses.interval import Interval
from circuits.losses.loss import Loss, strict_threshold
from circuits.losses.sample import Sample, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.model.transformer import Transformer
from circuits.model.windows import windowed
from circuits.roles import Roles
from circuits.task import Task
from circuits.utils.progress import Progress, part_of, shown

RANDOM_CIRCUITS = 200
REDUNDANT_PATHS, FOR_EACH_PATH = 200, 40  # enough for the smallest corrected p to be below the level
EXAMPLES = 32  # for random circuits, added paths and un-ablated heads; there are many of these
COST_EXAMPLES = 256  # for the cost of removing a path
LEVEL = 0.05
STREAM = "chance"  # the rng stream of the examples; validation uses another


@dataclass(frozen=True)
class ChanceReport:
    """A circuit compared with chance.

    Attributes:
        n_examples: the number of examples for the two losses; all other numbers use some of these.
        unablated: the loss of the unablated model.
        combined: the loss of the circuit.
        costs: for every path, how much its removal adds to the loss (row uniform or identity, whichever adds less).
        random_losses: the losses of different random circuits, sorted.
        redundant_costs: the absolute changes of the loss by different redundant paths, sorted.
        p_values: for every path, the p-value, corrected for the number of paths.
        unablating: for every head without a path, how much the loss falls if the head is un-ablated.
        unablating_all: how much the loss falls if all these heads are un-ablated at once.
    """

    n_examples: int
    unablated: Interval
    combined: Interval
    costs: dict[AttentionPath, Interval]
    random_losses: tuple[float, ...]
    redundant_costs: tuple[float, ...]
    p_values: dict[AttentionPath, float]
    unablating: dict[Head, Interval]
    unablating_all: Interval

    @property
    def beaten(self) -> int:
        """The number of random circuits with a higher loss than the circuit."""
        return sum(loss > self.combined.mean for loss in self.random_losses)

    def sentences(self) -> tuple[str, ...]:
        """Return the results in words."""
        n, m = len(self.random_losses), len(self.redundant_costs)
        said = [f"95% bootstrap intervals: unablated loss {self.unablated}, loss of the circuit {self.combined}."]
        if n:
            said.append(
                f"The circuit has a lower loss than {self.beaten} of {n} different random circuits with as many paths "
                f"in the same heads (p = {(1 + n - self.beaten) / (1 + n):.3f}"
                + ("; with so few random circuits p cannot be smaller). " if 1 / (1 + n) >= LEVEL else "). ")
                + f"The lowest loss of a random circuit is {self.random_losses[0]:.4f}, the median "
                f"{self.random_losses[n // 2]:.4f}."
            )
        else:
            said.append("No other circuit has as many paths in the same heads.")
        if self.costs and len(self.costs) / (1 + m) >= LEVEL:
            said.append(
                f"Only {m} different paths can be added with the loss below the threshold. They are too few to test "
                "whether a path of the circuit is redundant."
            )
        elif self.costs:
            open_ = [str(path) for path, p in self.p_values.items() if p >= LEVEL]
            least = min(self.costs.items(), key=lambda item: item[1].mean)
            said.append(
                f"{m} different redundant paths change the loss by at most {self.redundant_costs[-1]:.4f}. "
                + (
                    f"Removing these paths of the circuit costs no more than chance: {'; '.join(open_)}"
                    if open_
                    else "Removing any path of the circuit costs more than chance"
                )
                + f" (Holm-corrected, level {LEVEL:g}). The smallest cost is {least[1]}, for {least[0]}."
            )
        if self.unablating:
            head, gain = max(self.unablating.items(), key=lambda item: item[1].mean)
            said.append(
                f"Un-ablating all heads without a path ({len(self.unablating)}) lowers the loss by "
                f"{self.unablating_all}. The largest fall for a single head is {gain}, for {head}."
            )
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts; docs/reports.md explains every key."""
        return {
            "examples": {
                "losses": self.n_examples,
                "costs": min(COST_EXAMPLES, self.n_examples),
                "others": min(EXAMPLES, self.n_examples),
            },
            "unablated": self.unablated.to_json(),
            "combined": self.combined.to_json(),
            "random_circuits": {"n": len(self.random_losses), "beaten": self.beaten, "losses": self.random_losses},
            "redundant_paths": {"n": len(self.redundant_costs), "costs": self.redundant_costs},
            "paths": [
                {"path": str(path), "cost": cost.to_json(), "p": self.p_values.get(path)}
                for path, cost in self.costs.items()
            ],
            "unablating": {str(head): gain.to_json() for head, gain in self.unablating.items()},
            "unablating_all": self.unablating_all.to_json(),
            "sentences": self.sentences(),
        }


@entrance
def against_chance(
    model: Transformer,
    task: Task,
    circuit: Circuit,
    *,
    threshold: float = 0.05,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Progress | None = None,
) -> ChanceReport:
    """Compare a circuit with chance (Shi et al. 2024).

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        task: the model's task.
        circuit: the circuit.
        threshold: a loss below it counts as low.
        n_examples: the number of fresh examples.
        seed: the seed of the examples, the random circuits and the bootstrap.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or there are too few or too many examples.
    """
    sample = Sample(task, n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
    rng = np.random.default_rng(seed)
    test = SequentialTest(model, task, sample, threshold)

    def losses(circuits: list[Circuit], n: int, progress: Progress) -> Float[Tensor, "circuit example"]:
        each = test.each(circuits, n, progress)
        return torch.stack([own.mean(dim=-1) for own in each]) if each else torch.empty(0, n)

    useful = set(circuit.heads_with_paths)
    simple = [head for head in circuit.heads if head not in useful]
    without = [circuit.without(path, row) for path in circuit.paths for row in REPLACEMENTS]
    one_unablated = [circuit.without_heads([head]) for head in simple]
    roles = windowed(model, sample.roles.take(slice(0, EXAMPLES)))
    randoms = random_circuits(circuit, roles, rng)
    longer = with_one_path_more(circuit, roles)
    rng.shuffle(longer)
    longer = longer[: max(REDUNDANT_PATHS, FOR_EACH_PATH * len(circuit.paths))]
    with shown(progress, "is it chance?") as progress:
        unablated, combined = losses([Circuit(), circuit], n_examples, part_of(progress, 0.0, 0.2))
        kept, *removed = losses([circuit, *without], COST_EXAMPLES, part_of(progress, 0.2, 0.4))
        ways = [circuit, circuit.without_heads(simple), *one_unablated]
        before, all_unablated, *each_unablated = losses(ways, EXAMPLES, part_of(progress, 0.4, 0.5))
        random_losses = sorted(losses(randoms, EXAMPLES, part_of(progress, 0.5, 0.7)).mean(dim=1).tolist())
        changes = losses([circuit, *longer], EXAMPLES, part_of(progress, 0.7, 1.0)).mean(dim=1)
    costs = {}
    for path, uniform, identity in zip(circuit.paths, removed[::2], removed[1::2], strict=True):
        costs[path] = Interval.of(min(uniform, identity, key=torch.mean) - kept, seed)
    changes = changes[1:] - changes[0]
    own, replaced = (Loss.of(each[:, None], ("all",)) for each in (unablated, combined))
    level = strict_threshold(own, replaced, threshold)
    harmless = (combined.mean() + changes < level) & (combined.mean() < level)
    redundant = sorted(changes.abs()[harmless].tolist())
    raw = {
        path: (1 + sum(other >= cost.mean for other in redundant)) / (1 + len(redundant))
        for path, cost in costs.items()
    }
    return ChanceReport(
        n_examples=n_examples,
        unablated=Interval.of(unablated, seed),
        combined=Interval.of(combined, seed),
        costs=costs,
        random_losses=tuple(random_losses),
        redundant_costs=tuple(redundant),
        p_values=holm(raw),
        unablating={head: Interval.of(before - one, seed) for head, one in zip(simple, each_unablated, strict=True)},
        unablating_all=Interval.of(before - all_unablated, seed),
    )


def random_circuits(circuit: Circuit, roles: Roles, rng: np.random.Generator) -> list[Circuit]:
    """Return different random circuits with as many paths in the same heads, unchanged in all else.

    Every path of a one-hot head joins two random roles that the mask allows. Previous-token heads do not change, since
    they are easy to guess. There are at most ``RANDOM_CIRCUITS`` circuits, or fewer if twenty times as many random
    attempts do not give that many different ones.
    """
    targets: dict[int, dict[str, list[str]]] = {head.layer: {} for head in circuit.heads}
    for layer, own in targets.items():
        for source, target in roles.in_layer(layer).pairs:
            own.setdefault(source, []).append(target)
    drawn: dict[Circuit, None] = {}
    for _ in range(20 * RANDOM_CIRCUITS):
        other = _shuffled_paths(circuit, targets, rng)
        if other.paths != circuit.paths:
            drawn[other] = None
        if len(drawn) == RANDOM_CIRCUITS:
            break
    return list(drawn)


def _shuffled_paths(
    circuit: Circuit, by_layer: Mapping[int, Mapping[str, list[str]]], rng: np.random.Generator
) -> Circuit:
    for head, mechanism in circuit.heads.items():
        targets = by_layer[head.layer]
        if isinstance(mechanism, OneHot) and mechanism.paths:
            n_paths = min(len(mechanism.paths), len(targets))  # a path from a role to itself can make it more
            sources = [list(targets)[place] for place in rng.permutation(len(targets))[:n_paths]]
            rows = {source: targets[source][rng.integers(len(targets[source]))] for source in sources}
            where = _moved_conditions(mechanism, rows)
            if not rows:
                continue
            others = {ends: dict(mechanism.where).get(ends) for ends in mechanism.rows if ends not in mechanism.paths}
            kept = {ends: one for ends, one in others.items() if ends[0] not in rows}
            where |= {ends: one for ends, one in kept.items() if one is not None}
            circuit = circuit.with_head(head, OneHot([*rows.items(), *kept], mechanism.elsewhere, where))
    return circuit


def _moved_conditions(mechanism: OneHot, rows: Mapping[str, str]) -> dict[tuple[str, str], Condition]:
    """Return the conditions of a head's paths for as many other paths: the same labels, at the new targets."""
    own = [dict(mechanism.where).get(path) for path in mechanism.paths]
    pairs = zip(rows.items(), own, strict=False)
    return {ends: Condition(one.group, ends[1], one.labels) for ends, one in pairs if one is not None}


def with_one_path_more(circuit: Circuit, roles: Roles) -> list[Circuit]:
    """Return every circuit with one more path.

    It is added to a one-hot, uniform, identity or fixed head, from a role that has no row there.
    """
    found = []
    for head, mechanism in circuit.heads.items():
        for source, target in roles.in_layer(head.layer).pairs:
            if isinstance(mechanism, OneHot) and source not in dict(mechanism.rows):
                found.append(circuit.with_head(head, mechanism.with_row(source, target)))
            elif mechanism.name in REPLACEMENTS:
                found.append(circuit.with_head(head, OneHot({source: target}, mechanism.name)))
            elif isinstance(mechanism, FixedPattern):
                found.append(circuit.with_head(head, OneHot({source: target}, mechanism)))
    return found


def holm(p_values: dict[AttentionPath, float]) -> dict[AttentionPath, float]:
    """Apply Holm's correction: the smallest p times the number of tests, the next times one less, never decreasing."""
    corrected: dict[AttentionPath, float] = {}
    highest = 0.0
    for rank, (path, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        corrected[path] = highest
    return corrected

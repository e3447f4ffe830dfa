"""Is it chance? A circuit against random ones, its paths against redundant ones, its losses against resampling.

After Shi et al. 2024, *Hypothesis Testing the Circuit Hypothesis in LLMs*, with attention paths in the place of edges:

    faithfulness    the circuit's loss against random circuits with as many paths in the same heads
    minimality      what each path's removal costs, against what redundant paths cost; Holm's correction
    completeness    what the heads that were made simple would still add
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.losses.interval import Interval
from circuits.losses.loss import Loss, strict_threshold
from circuits.losses.sample import Sample, check_number, stream_seed
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.problem import Problem
from circuits.roles import Roles
from circuits.utils.progress import Progress, part_of, shown

RANDOM_CIRCUITS = 200
REDUNDANT_PATHS, FOR_EACH_PATH = 200, 40  # so many that the smallest p stays below the level after correction
EXAMPLES = 32  # for random circuits, added paths and un-ablated heads, of which there are many
COST_EXAMPLES = 256  # for what a path's removal costs
LEVEL = 0.05
STREAM = "chance"  # of examples; validation has others


@dataclass(frozen=True)
class ChanceReport:
    """What chance could and could not have done.

    Attributes:
        n_examples: on which the two losses were measured; what follows was measured on some of these.
        unablated: the model's own loss.
        combined: the circuit's loss.
        costs: for every path, what its removal adds to the loss (the smaller of its row made uniform and identity).
        random_losses: of the random circuits, all different, sorted.
        redundant_costs: what different redundant paths change, sorted; as absolute differences.
        p_values: for every path, corrected for their number.
        unablating: for every head without a path, how much the loss falls if it is un-ablated.
        unablating_all: the same with all of them at once.
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
        """How many random circuits have a higher loss than this one."""
        return sum(loss > self.combined.mean for loss in self.random_losses)

    def sentences(self) -> tuple[str, ...]:
        """What was found, in words."""
        n, m = len(self.random_losses), len(self.redundant_costs)
        said = [f"95% bootstrap intervals: unablated loss {self.unablated}, loss of the circuit {self.combined}."]
        if n:
            said.append(
                f"The circuit beats {self.beaten} of {n} different random circuits, which have as many paths in the "
                f"same heads. The best of them has a loss of {self.random_losses[0]:.4f}, the median one "
                f"{self.random_losses[n // 2]:.4f} (p = {(1 + n - self.beaten) / (1 + n):.3f}"
                + ("; with so few random circuits p cannot be smaller)." if 1 / (1 + n) >= LEVEL else ").")
            )
        else:
            said.append("No other circuit has as many paths in the same heads.")
        if self.costs and len(self.costs) / (1 + m) >= LEVEL:
            said.append(
                f"Only {m} different paths can be added with the loss below the threshold. These are too few to test "
                "whether a path of the circuit is redundant."
            )
        elif self.costs:
            open_ = [str(path) for path, p in self.p_values.items() if p >= LEVEL]
            least = min(self.costs.items(), key=lambda item: item[1].mean)
            said.append(
                f"{m} different redundant paths change the loss by at most {self.redundant_costs[-1]:.4f}. "
                + (
                    f"These paths of the circuit cost no more than chance: {'; '.join(open_)}"
                    if open_
                    else "Every path of the circuit costs more than chance"
                )
                + f" (Holm-corrected, level {LEVEL:g}). The cheapest path is {least[0]}, {least[1]}."
            )
        if self.unablating:
            head, gain = max(self.unablating.items(), key=lambda item: item[1].mean)
            said.append(
                f"Un-ablating all {len(self.unablating)} heads without a path lowers the loss by "
                f"{self.unablating_all}. The most useful of them, {head}, lowers it by {gain} alone."
            )
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """The statistics as plain numbers; docs/reports.md says what each key holds."""
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


def against_chance(
    model: HookedTransformer,
    problem: Problem,
    circuit: Circuit,
    *,
    threshold: float = 0.05,
    n_examples: int = 1024,
    seed: int = 0,
    progress: Progress | None = None,
) -> ChanceReport:
    """Hold a circuit against chance.

    Args:
        model: any HookedTransformer without padding.
        problem: its task.
        circuit: the circuit, as validated.
        threshold: a loss below it counts as low.
        n_examples: fresh examples, drawn with ``seed``.
        seed: of the examples, the random circuits and the resampling.
        progress: is called with the finished share, 0 to 1. Without it a bar is shown, in a notebook or a terminal.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or there are too few of those, or too many.
    """
    check_number(n_examples)
    sample = Sample(problem, n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
    rng = np.random.default_rng(seed)
    test = SequentialTest(model, problem, sample, threshold)

    def losses(circuits: list[Circuit], n: int, progress: Progress) -> Float[Tensor, "circuit example"]:
        each = test.each(circuits, n, progress)
        return torch.stack([own.mean(dim=-1) for own in each]) if each else torch.empty(0, n)

    useful = set(circuit.useful_heads)
    simple = [head for head in circuit.heads if head not in useful]
    without = [circuit.without(path, row) for path in circuit.paths for row in REPLACEMENTS]
    one_unablated = [circuit.without_heads([head]) for head in simple]
    randoms = random_circuits(circuit, sample.roles.take(slice(0, EXAMPLES)), rng)
    longer = with_one_path_more(circuit, sample.roles.take(slice(0, EXAMPLES)))
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
    """Different circuits with as many paths in the same heads, all else as it is.

    Every path of a one-hot head joins two random roles that the mask allows; previous-token heads stay what they are,
    since they are cheap to guess. At most ``RANDOM_CIRCUITS``; fewer where fewer come up in twenty times as many draws.
    """
    targets: dict[str, list[str]] = {}
    for source, target in roles.pairs:
        targets.setdefault(source, []).append(target)
    drawn: dict[Circuit, None] = {}
    for _ in range(20 * RANDOM_CIRCUITS):
        other = _shuffled_paths(circuit, targets, rng)
        if other.paths != circuit.paths:
            drawn[other] = None
        if len(drawn) == RANDOM_CIRCUITS:
            break
    return list(drawn)


def _shuffled_paths(circuit: Circuit, targets: Mapping[str, list[str]], rng: np.random.Generator) -> Circuit:
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, OneHot) and mechanism.paths:
            n_paths = min(len(mechanism.paths), len(targets))  # roles that look at themselves can make it more
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
    """The conditions of a head's paths for as many others: the same labels, at the new targets."""
    own = [dict(mechanism.where).get(path) for path in mechanism.paths]
    pairs = zip(rows.items(), own, strict=False)
    return {ends: Condition(one.group, ends[1], one.labels) for ends, one in pairs if one is not None}


def with_one_path_more(circuit: Circuit, roles: Roles) -> list[Circuit]:
    """Every circuit with one path more: in a one-hot, uniform or identity head, from a role that has none there."""
    found = []
    for head, mechanism in circuit.heads.items():
        for source, target in roles.pairs:
            if isinstance(mechanism, OneHot) and source not in dict(mechanism.rows):
                found.append(circuit.with_head(head, mechanism.with_row(source, target)))
            elif mechanism.name in REPLACEMENTS:
                found.append(circuit.with_head(head, OneHot({source: target}, mechanism.name)))
            elif isinstance(mechanism, FixedPattern):
                found.append(circuit.with_head(head, OneHot({source: target}, mechanism)))
    return found


def holm(p_values: dict[AttentionPath, float]) -> dict[AttentionPath, float]:
    """Holm's correction: the smallest p times the number of tests, the next times one less, never decreasing."""
    corrected: dict[AttentionPath, float] = {}
    highest = 0.0
    for rank, (path, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        corrected[path] = highest
    return corrected

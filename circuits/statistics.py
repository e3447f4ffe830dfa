"""Is it chance? A circuit against random ones, its paths against superfluous ones, its losses against resampling.

After Shi et al. 2024, *Hypothesis Testing the Circuit Hypothesis in LLMs*, with attention paths in the place of edges:

    faithfulness    the circuit's loss against random circuits with as many paths in the same heads
    minimality      what each path's removal costs, against what superfluous paths cost; Holm's correction
    completeness    what the heads that were made simple would still add
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.circuit import Circuit, Head, Path
from circuits.fixed_pattern import Fixed
from circuits.interval import Interval
from circuits.judge import Judge
from circuits.loss import Loss, strict_level
from circuits.measured import Measured
from circuits.mechanisms import REPLACEMENTS
from circuits.one_hot import Condition, OneHot
from circuits.problem import Problem
from circuits.roles import Roles
from circuits.sample import Sample, check_number, stream_seed

RANDOM_CIRCUITS = 200
SUPERFLUOUS_PATHS, FOR_EACH_PATH = 200, 40  # so many that the smallest p stays below the level after correction
EXAMPLES = 32  # for random circuits and paths and for heads left untouched, of which there are many
COST_EXAMPLES = 256  # for what a path's removal costs
LEVEL = 0.05
STREAM = "chance"  # of examples; validation has others


@dataclass(frozen=True)
class Statistics:
    """What chance could and could not have done.

    Attributes:
        n_examples: on which the two losses were measured; what follows was measured on some of these.
        full: the model's own loss.
        combined: the circuit's loss.
        costs: for every path, what its removal adds to the loss (the smaller of its row made uniform and identity).
        random_losses: of the random circuits, all different, sorted.
        superfluous_costs: what different superfluous paths change, sorted; as absolute differences.
        p_values: for every path, corrected for their number.
        restored: for every head without a path, how much the loss falls if it is left untouched.
        all_restored: the same with all of them untouched at once.
    """

    n_examples: int
    full: Interval
    combined: Interval
    costs: dict[Path, Interval]
    random_losses: tuple[float, ...]
    superfluous_costs: tuple[float, ...]
    p_values: dict[Path, float]
    restored: dict[Head, Interval]
    all_restored: Interval

    @property
    def beaten(self) -> int:
        """How many random circuits have a higher loss than this one."""
        return sum(loss > self.combined.mean for loss in self.random_losses)

    def sentences(self) -> tuple[str, ...]:
        """What was found, in words."""
        n, m = len(self.random_losses), len(self.superfluous_costs)
        said = [f"95% bootstrap intervals: the model's own loss {self.full}, the circuit's {self.combined}."]
        if n:
            said.append(
                f"The circuit beats {self.beaten} of {n} different random circuits with as many paths in the same "
                f"heads; the best of those has a loss of {self.random_losses[0]:.4f}, the median one "
                f"{self.random_losses[n // 2]:.4f} (p = {(1 + n - self.beaten) / (1 + n):.3f}"
                + (", and so few there are that it cannot be smaller)." if 1 / (1 + n) >= LEVEL else ").")
            )
        else:
            said.append("No other circuit has as many paths in the same heads.")
        if self.costs and len(self.costs) / (1 + m) >= LEVEL:
            said.append(
                f"Only {m} different paths can be added with the loss below the threshold: too few to judge by whether "
                "any of the circuit's own is superfluous."
            )
        elif self.costs:
            open_ = [str(path) for path, p in self.p_values.items() if p >= LEVEL]
            least = min(self.costs.items(), key=lambda item: item[1].mean)
            said.append(
                f"Against {m} different superfluous paths, which change the loss by {self.superfluous_costs[-1]:.4f} "
                "at most, "
                + (f"not more than chance: {'; '.join(open_)}" if open_ else "every path costs more than chance")
                + f" (Holm-corrected, level {LEVEL:g}); the least is {least[0]}, {least[1]}."
            )
        if self.restored:
            head, gain = max(self.restored.items(), key=lambda item: item[1].mean)
            said.append(
                f"Left untouched, the {len(self.restored)} heads without a path would lower the loss by "
                f"{self.all_restored} together, and {head} alone, the most useful of them, by {gain}."
            )
        return tuple(said)

    def to_json(self) -> dict[str, Any]:
        """The statistics as plain numbers; docs/report.md says what each key holds."""
        return {
            "examples": {
                "losses": self.n_examples,
                "costs": min(COST_EXAMPLES, self.n_examples),
                "others": min(EXAMPLES, self.n_examples),
            },
            "full": self.full.to_json(),
            "combined": self.combined.to_json(),
            "random_circuits": {"n": len(self.random_losses), "beaten": self.beaten, "losses": self.random_losses},
            "superfluous_paths": {"n": len(self.superfluous_costs), "costs": self.superfluous_costs},
            "paths": [
                {"path": str(path), "cost": cost.to_json(), "p": self.p_values.get(path)}
                for path, cost in self.costs.items()
            ],
            "restored": {str(head): gain.to_json() for head, gain in self.restored.items()},
            "all_restored": self.all_restored.to_json(),
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
    progress: Callable[[float], None] = lambda share: None,
    measured: Measured | None = None,
) -> Statistics:
    """Hold a circuit against chance.

    Args:
        model: any HookedTransformer without padding.
        problem: its task.
        circuit: the circuit, as validated.
        threshold: a loss below it counts as low.
        n_examples: fresh examples, drawn with ``seed``.
        seed: of the examples, the random circuits and the resampling.
        progress: is told the finished share, 0 to 1.
        measured: what need not be measured again, such as what a run left that was stopped; what is measured is added.

    Raises:
        BadInput: the circuit does not fit the model or the examples, or there are too few of those, or too many.
    """
    check_number(n_examples)
    sample = Sample(problem, n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
    rng = np.random.default_rng(seed)
    judge = Judge(model, problem, sample, threshold, measured.of(model, problem, sample) if measured else None)

    def losses(circuits: list[Circuit], n: int, first: float, last: float) -> Float[Tensor, "circuit example"]:
        each = judge.each(circuits, n, lambda share: progress(first + (last - first) * share))
        return torch.stack([own.mean(dim=-1) for own in each]) if each else torch.empty(0, n)

    useful = set(circuit.useful_heads)
    simple = [head for head in circuit.heads if head not in useful]
    without = [circuit.without(path, row) for path in circuit.paths for row in REPLACEMENTS]
    untouched = [circuit.without_heads([head]) for head in simple]
    randoms = random_circuits(circuit, sample.roles.take(slice(0, EXAMPLES)), rng)
    inflated = with_one_path_more(circuit, sample.roles.take(slice(0, EXAMPLES)))
    rng.shuffle(inflated)
    inflated = inflated[: max(SUPERFLUOUS_PATHS, FOR_EACH_PATH * len(circuit.paths))]
    try:
        full, combined = losses([Circuit(), circuit], n_examples, 0.0, 0.2)
        kept, *removed = losses([circuit, *without], COST_EXAMPLES, 0.2, 0.4)
        free = losses([circuit, circuit.without_heads(simple), *untouched], EXAMPLES, 0.4, 0.5)
        random_losses = sorted(losses(randoms, EXAMPLES, 0.5, 0.7).mean(dim=1).tolist())
        changes = losses([circuit, *inflated], EXAMPLES, 0.7, 1.0).mean(dim=1)
    finally:
        if measured:
            measured.keep()
    costs = {}
    for path, uniform, identity in zip(circuit.paths, removed[::2], removed[1::2], strict=True):
        costs[path] = Interval.of(min(uniform, identity, key=torch.mean) - kept, seed)
    changes = changes[1:] - changes[0]
    own, replaced = (Loss.of(each[:, None], ("all",)) for each in (full, combined))
    level = strict_level(own, replaced, threshold)
    harmless = (combined.mean() + changes < level) & (combined.mean() < level)
    superfluous = sorted(changes.abs()[harmless].tolist())
    raw = {
        path: (1 + sum(other >= cost.mean for other in superfluous)) / (1 + len(superfluous))
        for path, cost in costs.items()
    }
    return Statistics(
        n_examples=n_examples,
        full=Interval.of(full, seed),
        combined=Interval.of(combined, seed),
        costs=costs,
        random_losses=tuple(random_losses),
        superfluous_costs=tuple(superfluous),
        p_values=holm(raw),
        restored={head: Interval.of(free[0] - loss, seed) for head, loss in zip(simple, free[2:], strict=True)},
        all_restored=Interval.of(free[0] - free[1], seed),
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
            elif isinstance(mechanism, Fixed):
                found.append(circuit.with_head(head, OneHot({source: target}, mechanism)))
    return found


def holm(p_values: dict[Path, float]) -> dict[Path, float]:
    """Holm's correction: the smallest p times the number of tests, the next times one less, never decreasing."""
    corrected: dict[Path, float] = {}
    highest = 0.0
    for rank, (path, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        corrected[path] = highest
    return corrected

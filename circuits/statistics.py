"""Is it chance? A circuit against random ones, its paths against superfluous ones, its losses against resampling.

After Shi et al. 2024, *Hypothesis Testing the Circuit Hypothesis in LLMs*, with attention paths in the place of edges:

    faithfulness    the circuit's loss against random circuits with as many paths in the same heads
    minimality      what each path's removal costs, against what superfluous paths cost; Holm's correction
    completeness    what the heads that were made simple would still add
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.evaluation import evaluate
from circuits.mechanisms import REPLACEMENTS, OneHot
from circuits.problem import Examples, Problem
from circuits.roles import Roles

RANDOM_CIRCUITS, RESAMPLED = 200, 2000
SUPERFLUOUS_PATHS, FOR_EACH_PATH = 200, 40  # so many that the smallest p stays below the level after correction
EXAMPLES = 64  # for random circuits and paths and for heads left untouched, of which there are many
LEVEL = 0.05


@dataclass(frozen=True)
class Interval:
    """A mean with its 95% bootstrap interval, examples drawn with replacement."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float[Tensor, " example"], seed: int) -> "Interval":
        """Resample the examples ``RESAMPLED`` times."""
        numbers = values.double().cpu().numpy()
        rng = np.random.default_rng(seed)
        means = [rng.choice(numbers, len(numbers)).mean() for _ in range(RESAMPLED)]
        low, high = np.quantile(means, [0.025, 0.975])
        return cls(float(numbers.mean()), float(low), float(high))

    def __str__(self) -> str:
        return f"{self.mean:.4f} [{self.low:.4f}, {self.high:.4f}]"

    def to_json(self) -> dict[str, float]:
        """``mean``, ``low`` and ``high``."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


@dataclass(frozen=True)
class Statistics:
    """What chance could and could not have done.

    Attributes:
        full: the model's own loss.
        combined: the circuit's loss.
        costs: for every path, what its removal adds to the loss (the smaller of its row made uniform and identity).
        random_losses: of the random circuits, sorted.
        superfluous_costs: what superfluous random paths change, sorted; as absolute differences.
        p_values: for every path, corrected for their number.
        restored: for every head without a path, how much the loss falls if it is left untouched.
        all_restored: the same with all of them untouched at once.
    """

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
        said = [
            f"95% bootstrap intervals: the model's own loss {self.full}, the circuit's {self.combined}.",
            f"The circuit beats {self.beaten} of {n} random circuits with as many paths in the same heads; "
            f"the best of those has a loss of {self.random_losses[0]:.4f}, "
            f"the median one {self.random_losses[n // 2]:.4f} (p = {(1 + n - self.beaten) / (1 + n):.3f}).",
        ]
        if self.costs and len(self.costs) / (1 + m) >= LEVEL:
            said.append(f"Only {m} random paths could be added with the loss below the threshold: too few to judge by.")
        elif self.costs:
            open_ = [str(path) for path, p in self.p_values.items() if p >= LEVEL]
            least = min(self.costs.items(), key=lambda item: item[1].mean)
            said.append(
                f"Against {m} superfluous paths, whose removal changes the loss by {self.superfluous_costs[-1]:.4f} "
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

    Raises:
        BadInput: the circuit does not fit the model or the examples, or there are fewer than two of those.
    """
    if n_examples < 2:
        raise BadInput(f"{n_examples} examples; expected at least 2")
    device = next(model.parameters()).device
    examples = problem.examples(n_examples, seed).to(device)
    few = examples.take(slice(0, EXAMPLES))
    rng = np.random.default_rng(seed)

    def losses(
        examples: Examples, circuits: list[Circuit], first: float, last: float
    ) -> Float[Tensor, "circuit example"]:
        each = evaluate(model, problem, examples, circuits, lambda share: progress(first + (last - first) * share))
        return each.mean(dim=-1)

    useful = set(circuit.useful_heads)
    simple = [head for head in circuit.heads if head not in useful]
    without = [circuit.without(path, row) for path in circuit.paths for row in REPLACEMENTS]
    untouched = [circuit.without_heads([head]) for head in simple]
    precise = losses(examples, [circuit, *without], 0.0, 0.3)
    full = losses(examples, [Circuit()], 0.3, 0.4)[0]
    free = losses(few, [circuit, circuit.without_heads(simple), *untouched], 0.4, 0.6)
    combined, own = precise[0], precise[1:].unflatten(0, (-1, 2)) if without else precise[1:]
    costs = {}
    for path, pair in zip(circuit.paths, own, strict=True):
        least = pair[pair.mean(dim=1).argmin()]
        costs[path] = Interval.of(least - combined, seed)

    randoms = [random_circuit(circuit, few.roles, rng) for _ in range(RANDOM_CIRCUITS)]
    random_losses = sorted(losses(few, randoms, 0.6, 0.9).mean(dim=1).tolist())
    wanted = max(SUPERFLUOUS_PATHS, FOR_EACH_PATH * len(circuit.paths))
    inflated = [added for _ in range(wanted) if (added := with_random_path(circuit, few.roles, rng))]
    superfluous: list[float] = []
    if inflated:
        changes = losses(few, [circuit, *inflated], 0.9, 1.0).mean(dim=1)
        # Superfluous as step 6 has it: with the path and without it the loss is below the threshold.
        harmless = (changes[1:] < threshold) & (changes[0] < threshold)
        superfluous = sorted((changes[1:] - changes[0]).abs()[harmless].tolist())
    raw = {
        path: (1 + sum(other >= cost.mean for other in superfluous)) / (1 + len(superfluous))
        for path, cost in costs.items()
    }
    return Statistics(
        full=Interval.of(full, seed),
        combined=Interval.of(combined, seed),
        costs=costs,
        random_losses=tuple(random_losses),
        superfluous_costs=tuple(superfluous),
        p_values=holm(raw),
        restored={head: Interval.of(free[0] - loss, seed) for head, loss in zip(simple, free[2:], strict=True)},
        all_restored=Interval.of(free[0] - free[1], seed),
    )


def random_circuit(circuit: Circuit, roles: Roles, rng: np.random.Generator) -> Circuit:
    """As many paths in the same heads, all else as it is: every path joins two random roles that the mask allows.

    Never the circuit itself, unless chance brings nothing else up a hundred times.
    """
    drawn = circuit
    for _ in range(100):
        drawn = _shuffled_paths(circuit, roles, rng)
        if drawn.paths != circuit.paths:
            break
    return drawn


def _shuffled_paths(circuit: Circuit, roles: Roles, rng: np.random.Generator) -> Circuit:
    allowed = _allowed_paths(roles)
    for head in circuit.useful_heads:
        mechanism = circuit.heads[head]
        elsewhere = mechanism.elsewhere if isinstance(mechanism, OneHot) else "zero"
        n_paths = sum(path.head == head for path in circuit.paths)
        rows: dict[str, str] = {}
        while len(rows) < min(n_paths, len({source for source, _ in allowed})):
            source, target = allowed[rng.integers(len(allowed))]
            rows.setdefault(source, target)
        circuit = circuit.with_head(head, OneHot(rows, elsewhere))
    return circuit


def with_random_path(circuit: Circuit, roles: Roles, rng: np.random.Generator) -> Circuit | None:
    """One random path more, in a head that has some already, from a role that has none there; None if none is free."""
    heads = {head: m for head, m in circuit.heads.items() if isinstance(m, OneHot)}
    free = [
        (head, source, target)
        for head, mechanism in heads.items()
        for source, target in _allowed_paths(roles)
        if source not in dict(mechanism.rows)
    ]
    if not free:
        return None
    head, source, target = free[rng.integers(len(free))]
    return circuit.with_head(head, heads[head].with_row(source, target))


def holm(p_values: dict[Path, float]) -> dict[Path, float]:
    """Holm's correction: the smallest p times the number of tests, the next times one less, never decreasing."""
    corrected: dict[Path, float] = {}
    highest = 0.0
    for rank, (path, p) in enumerate(sorted(p_values.items(), key=lambda item: item[1])):
        highest = max(highest, min(1.0, p * (len(p_values) - rank)))
        corrected[path] = highest
    return corrected


def _allowed_paths(roles: Roles) -> list[tuple[str, str]]:
    return [(source, target) for source in roles.names for target in roles.before(source)]

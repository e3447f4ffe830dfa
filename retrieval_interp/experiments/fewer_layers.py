"""One layer fewer than information flow asks for: which models learn a symbol with it, and how (docs/protocol.md).

In the depth sweep, models with eight heads and MLPs did. Here the same conditions and their neighbours are trained with
more seeds. fewer_layers_mechanism.py measures what the first layer fetches by position, and where x2 is after it.
fewer_layers_rules.py decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from circuits.errors import BadInput
from circuits.interchange.interchange_result import CARRIES
from circuits.losses.loss import SURE
from retrieval_interp.experiments.depth_sweep import (
    LEARNED,
    Key,
    MLPs,
    Point,
    TrainingCondition,
    fresh_losses,
    trained,
)
from retrieval_interp.experiments.fewer_layers_mechanism import ATTENDED, attention_to_pairs, fetched, last_layer
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.theory.depth import least_loss_one_layer

HEADS = (2, 4, 8)
ROLES = ("query", "pair1.first", "pair1.second", "pair2.first", "pair2.second")  # at which symbols are exchanged


@dataclass(frozen=True)
class Outcome:
    """One trained model.

    Attributes:
        n_steps: D, the number of hops.
        n_layers: the number of layers.
        step_order: the order of the pairs.
        n_heads: the number of heads per layer.
        mlps: the layers that have an MLP.
        seed: the seed of weights and data.
        steps: the largest number of training steps.
        stopped: the step at which training ended; less than ``steps`` if all symbols were mastered earlier.
        losses: for every symbol the squared error on fresh examples.
        standard_errors: their standard errors.
        fixed: the pairs whose second member a head of the first layer always gives the query's attention.
        gated: the other pairs whose second member a head gives it only if the pair is the one in question.
        n_pairs: the number of pairs that may be the one in question.
        found: the number of heads of the first layer by which the query attends to the first member of its own pair.
        by_way_of_x1: the share of x2's answers that follow if x1 is exchanged at the query after the first layer; None
            for one hop or one layer.
        known: where x1 and x2 are after the first layer (``LastLayer``); empty unless x2 was learned with two layers.
        attended: the query's attention in the last layer (``LastLayer``); empty if ``known`` is.
    """

    n_steps: int
    n_layers: int
    step_order: StepOrder
    n_heads: int
    mlps: MLPs
    seed: int
    steps: int
    stopped: int
    losses: dict[str, float]
    standard_errors: dict[str, float]
    fixed: int
    gated: int
    n_pairs: int
    found: int
    by_way_of_x1: float | None
    known: dict[str, float] = field(default_factory=dict)
    attended: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise ValueError("a model that is not in this experiment")
        symbols = [f"x{k}" for k in range(1, self.n_steps + 1)]
        if list(self.losses) != symbols or list(self.standard_errors) != symbols:
            raise ValueError(f"losses of {', '.join(self.losses)}; expected x1 to x{self.n_steps}")
        numbers = (*self.losses.values(), *self.standard_errors.values(), self.fixed, self.gated, self.found)
        if min(numbers) < 0 or self.fixed + self.gated > self.n_pairs or not 0 < self.stopped <= self.steps:
            raise ValueError("a number is out of range")
        shares = (*self.known.values(), *self.attended.values(), self.by_way_of_x1 or 0.0)
        if min(shares) < 0 or max(shares) > 1.001 or (self.by_way_of_x1 is None) != (self.n_layers == 1):
            raise ValueError("a share is missing or out of range")
        expected = {f"{x} at {role}" for x in ("x1", "x2") for role in ROLES}, {*ROLES}
        two = self.n_layers > 1 and self.loss < LEARNED
        if ({*self.known}, {*self.attended}) != (expected if two else (set(), set())):
            raise ValueError("roles at which symbols were exchanged are missing, or too many")

    @property
    def point(self) -> Point:
        """The model that was trained."""
        return Point(self.n_steps, self.n_layers, TrainingCondition(self.step_order, self.n_heads, self.mlps))

    @property
    def model(self) -> str:
        """The number of hops, of layers, and the condition, in words."""
        layers = "1 layer" if self.n_layers == 1 else f"{self.n_layers} layers"
        return f"D = {self.n_steps}, {layers}, {self.point.condition}"

    @property
    def loss(self) -> float:
        """The squared error of the symbol in question, which takes one layer more than the model has."""
        return self.losses[f"x{self.n_layers}"]

    @property
    def by_position(self) -> bool:
        """Whether the first layer fetches all pairs that may be the one in question, by their positions."""
        return self.fixed + self.gated == self.n_pairs

    @property
    def through_x1(self) -> bool:
        """Whether x2 reaches the answer by way of x1 at the query."""
        return self.by_way_of_x1 is not None and self.by_way_of_x1 >= CARRIES

    @property
    def both_in_last(self) -> bool:
        """Whether both symbols reach the query in the last layer, x1 by its symbol and x2 by position.

        After the first layer, x1 is at pair1.second and x2 at pair2.second; then a head attends from the query to
        pair1.second, and none to pair2.second.
        """
        there = self.known and min(self.known["x1 at pair1.second"], self.known["x2 at pair2.second"]) >= CARRIES
        found = self.attended.get("pair1.second", 0.0) > ATTENDED >= self.attended.get("pair2.second", 1.0)
        return bool(there) and found

    @property
    def below_bound(self) -> bool | None:
        """Whether x1 is clearly better known than heads can bring it in one layer; None with more layers."""
        if self.n_layers > 1:
            return None
        least = least_loss_one_layer(self.n_heads, self.n_pairs)
        return self.losses["x1"] < least - SURE * self.standard_errors["x1"]


def _points() -> tuple[Point, ...]:
    blocks, anywhere = StepOrder.LAST_FIRST, StepOrder.ANY
    kinds = (
        *((1, 1, blocks, mlps) for mlps in (MLPs.NONE, MLPs.EVERY)),
        (2, 1, blocks, MLPs.EVERY),
        *((2, 2, order, mlps) for order, mlps in product((blocks, anywhere), (MLPs.EVERY, MLPs.LAST))),
    )
    return tuple(
        Point(hops, n_layers, TrainingCondition(order, heads, mlps))
        for (hops, n_layers, order, mlps), heads in product(kinds, HEADS)
    )


POINTS = _points()


def train_once(key: Key, steps: int, progress: Callable[[float], None] = lambda share: None) -> Outcome:
    """Train one model, and measure what it learned and how.

    Args:
        key: the seed of weights and data, and the model.
        steps: the largest number of training steps.
        progress: is called with the finished share of the steps, 0 to 1.
    """
    seed, point = key
    own = point.condition
    model, task, stopped = trained(key, steps, progress)
    each = fresh_losses(model, task)
    mean, error = each.mean(dim=0).tolist(), (each.std(dim=0) / len(each) ** 0.5).tolist()
    two = point.n_layers > 1
    found = last_layer(model, task) if two else None
    learned = found if mean[point.n_layers - 1] < LEARNED else None
    return Outcome(
        *(point.n_steps, point.n_layers, own.step_order, own.n_heads, own.mlps, seed, steps, stopped),
        dict(zip(task.loss_components, mean, strict=True)),
        dict(zip(task.loss_components, error, strict=True)),
        *fetched(*attention_to_pairs(model, task)),
        by_way_of_x1=found.known["x1 at query"] if found else None,
        known=learned.known if learned else {},
        attended=learned.attention if learned else {},
    )


def experiment(
    n_seeds: int, steps: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Outcome]:
    """Train every model with every seed, all models of a seed first; runs that are in the folder are not repeated.

    Raises:
        BadInput: the folder holds runs of another length, or its file is damaged.
    """
    file = folder / RUNS
    wanted = [(seed, point) for seed in range(n_seeds) for point in POINTS]
    check_length(POINTS[0].preset(steps).recipe)

    def done() -> dict[Key, Outcome]:
        kept = read(folder)
        if any(run.steps != steps for run in kept):
            raise BadInput(f"{file}: holds runs of {kept[0].steps} steps; choose another folder")
        by_key = {(run.seed, run.point): run for run in kept}
        if len(by_key) < len(kept):
            raise BadInput(f"{file}: holds a run twice; remove one of the lines")
        return by_key

    return all_runs(wanted, done, file, lambda key, share: train_once(key, steps, share), progress)


def read(folder: Path) -> list[Outcome]:
    """Read the runs in a folder.

    Raises:
        BadInput: the file of the runs is damaged.
    """
    return read_runs(folder / RUNS, Outcome)

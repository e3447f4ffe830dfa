"""One layer fewer than information flow asks for: which models learn a symbol with it, and how (docs/protocol.md).

In the depth sweep, models with eight heads and MLPs did. Here the same conditions and their neighbours are trained with
more seeds. fewer_layers_mechanism.py measures what the first layer fetches by position, and where x2 is after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.interchange.interchange_result import CARRIES
from circuits.losses.interval import Interval
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
SEEDS = 10  # the number of runs of every model on which the protocol decides
MOST = 0.8  # the share of runs for a statement on the mechanism
FIRST_TEST = 2  # the first seed that tests what was seen on the seeds before it
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
        return {(run.seed, run.point): run for run in kept}

    return all_runs(wanted, done, file, lambda key, share: train_once(key, steps, share), progress)


def read(folder: Path) -> list[Outcome]:
    """Read the runs in a folder.

    Raises:
        BadInput: the file of the runs is damaged.
    """
    return read_runs(folder / RUNS, Outcome)


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a row for each condition.

    Columns: ``model``, the number of hops, of layers and the condition, in words; ``symbol``, the one in question;
    ``bound``, the least loss by the number of heads, for one layer; ``runs``; ``learned``, the number of runs with a
    loss below 0.5; ``share_low`` and ``share_high``, Wilson's 95% interval of their share; ``loss``, ``low`` and
    ``high``, the mean, the lowest and the highest loss over seeds; ``below_bound``, the number of runs clearly below
    the bound. Of the runs that learned the symbol: ``by_position``, the number that fetch all pairs by position;
    ``by_way_of_x1``, whose x2 goes through x1 at the query; and ``both_in_last``, to whose query x1 and x2 both come in
    the last layer. The last two are None for one layer.
    """
    found: list[dict[str, Any]] = []
    for point in dict.fromkeys(run.point for run in outcomes):
        own = [run for run in outcomes if run.point == point]
        learned = [run for run in own if run.loss < LEARNED]
        share, losses = Interval.of_share(len(learned), len(own)), [run.loss for run in own]
        one = point.n_layers == 1
        found.append(
            {
                "model": own[0].model,
                "symbol": f"x{point.n_layers}",
                "bound": least_loss_one_layer(point.condition.n_heads, own[0].n_pairs) if one else None,
                "runs": len(own),
                "learned": len(learned),
                "share_low": share.low,
                "share_high": share.high,
                "loss": sum(losses) / len(losses),
                "low": min(losses),
                "high": max(losses),
                "below_bound": sum(bool(run.below_bound) for run in own) if one else None,
                "by_position": sum(run.by_position for run in learned),
                "by_way_of_x1": None if one else sum(run.through_x1 for run in learned),
                "both_in_last": None if one else sum(run.both_in_last for run in learned),
            }
        )
    return found


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the statements of the protocol, each with the numbers that decide it, or what is missing to decide."""
    every = rows(outcomes)
    found = [
        f"{row['model']}: {row['symbol']} was learned in {row['learned']} of {row['runs']} runs "
        f"({row['share_low']:.0%} to {row['share_high']:.0%}), so {_breach(row['learned'], row['runs'])}."
        for row in every
    ]
    few = [run.below_bound for run in outcomes if run.n_layers == 1 and run.point.condition.n_heads < run.n_pairs]
    found.append(
        f"{sum(map(bool, few))} of {len(few)} models of one layer with fewer heads than pairs have a loss clearly below"
        " the bound by heads. With as many heads as pairs, the bound is 0."
    )
    learned = [run for run in outcomes if run.loss < LEARNED]
    blocks = [run.by_position for run in learned if run.step_order is StepOrder.LAST_FIRST]
    two = [run for run in learned if run.n_layers > 1]
    complete = len(every) == len(POINTS) and all(row["runs"] >= SEEDS for row in every)
    found.append(_stated(blocks, "fetch all pairs by position (pairs within blocks)", complete))
    found.append(_stated([run.through_x1 for run in two], "bring x2 by way of x1 at the query (two layers)", complete))
    both = [run.both_in_last for run in two if run.seed >= FIRST_TEST]
    what = f"bring both symbols to the query in the last layer (two layers, seeds from {FIRST_TEST})"
    found.append(_stated(both, what, complete))
    return found


def _breach(learned: int, runs: int) -> str:
    """Return whether a condition breaches Assumption 1: the symbol is learned in more than half of ten runs."""
    if 2 * learned > max(SEEDS, runs):
        return "the condition breaches Assumption 1"
    if 2 * (runs - learned) >= max(SEEDS, runs):
        return "the condition does not breach Assumption 1"
    return f"it is undecided whether the condition breaches Assumption 1 (it takes more than half of {SEEDS} runs)"


def _stated(which: Sequence[bool], what: str, complete: bool) -> str:
    """Return whether most runs that learned the symbol in question do something."""
    if not which:
        return f"No run learned the symbol in question, so none can {what}."
    share = Interval.of_share(sum(which), len(which))
    decision = "holds" if sum(which) >= MOST * len(which) else "does not hold"
    says = decision if complete else f"is undecided before all models have {SEEDS} runs"
    numbers = f"{sum(which)} of {len(which)} do, {share.low:.0%} to {share.high:.0%}"
    return f"That runs which learned the symbol in question {what} {says} ({numbers}; at least {MOST:.0%} expected)."

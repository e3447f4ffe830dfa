"""One layer fewer than information flow asks for: which models learn a symbol with it, and how (docs/protocol.md).

In the depth sweep, models with eight heads and MLPs did. Here the same conditions and their neighbours are trained with
more seeds. Every model is asked what its first layer fetches by position, and whether x1 is at the query after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.interchange.interchange_result import CARRIES
from circuits.losses.interval import Interval
from circuits.losses.loss import SURE
from circuits.model.transformer import Transformer
from circuits.utils.lazy import torch
from retrieval_interp.experiments.depth_sweep import (
    FRESH_SEED,
    LEARNED,
    Key,
    MLPs,
    Point,
    TrainingCondition,
    fresh_losses,
    trained,
)
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.tasks.task import Task
from retrieval_interp.theory.depth import least_loss_one_layer

HEADS = (2, 4, 8)
EXAMPLES = 512  # fresh examples for the attention; half of them for interchange
ATTENDED, NOT_ATTENDED = 0.5, 0.25  # of a head's attention
SEEDS = 10  # the number of runs of every model on which the protocol decides
MOST = 0.8  # the share of runs for a statement on the mechanism


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

    def __post_init__(self) -> None:
        if self.point not in POINTS:
            raise ValueError("a model that is not in this experiment")
        symbols = [f"x{k}" for k in range(1, self.n_steps + 1)]
        if list(self.losses) != symbols or list(self.standard_errors) != symbols:
            raise ValueError(f"losses of {', '.join(self.losses)}; expected x1 to x{self.n_steps}")

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
    return Outcome(
        *(point.n_steps, point.n_layers, own.step_order, own.n_heads, own.mlps, seed, steps, stopped),
        dict(zip(task.loss_components, mean, strict=True)),
        dict(zip(task.loss_components, error, strict=True)),
        *fetched(*attention_to_pairs(model, task)),
        carried_by_x1(model, task) if point.n_layers > 1 else None,
    )


def attention_to_pairs(
    model: Transformer, task: Task
) -> tuple[Float[torch.Tensor, "head asked pair"], Float[torch.Tensor, "head asked"]]:
    """Return the query's average attention in the first layer, by the place of the pair in question.

    Returns:
        the attention to the second member of every pair, and to the first member of the pair in question. Pairs are
        those places at which a pair of the first hop can stand, in their order.
    """
    from circuits.model.patterns import attention_patterns

    examples = task.examples(EXAMPLES, FRESH_SEED)
    roles = examples.roles
    query, first, second = (roles[name] for name in ("query", "pair1.first", "pair1.second"))
    _, patterns = next(attention_patterns(model, examples))
    rows = patterns.gather(2, query[:, None, :, None].expand(-1, patterns.shape[1], -1, patterns.shape[3]))
    places, asked = second.unique(return_inverse=True)
    mine = [rows.transpose(1, 2)[asked == place] for place in range(len(places))]  # [instance, head, key]
    firsts = [first[asked == place] for place in range(len(places))]
    found = [own.gather(2, at[:, None, None].expand(-1, own.shape[1], 1)) for own, at in zip(mine, firsts, strict=True)]
    seconds = torch.stack([own[:, :, places].mean(dim=0) for own in mine], dim=1)
    return seconds, torch.stack([own.squeeze(2).mean(dim=0) for own in found], dim=1)


class Fetched(NamedTuple):
    """What the first layer fetches: ``fixed``, ``gated``, ``n_pairs`` and ``found`` of an ``Outcome``."""

    fixed: int
    gated: int
    n_pairs: int
    found: int


def fetched(seconds: Float[torch.Tensor, "head asked pair"], first: Float[torch.Tensor, "head asked"]) -> Fetched:
    """Return how many pairs the first layer fetches by position, and how many heads find the pair in question.

    Args:
        seconds: the query's attention to second members.
        first: the query's attention to the first member of the pair in question.
    """
    n_pairs = seconds.shape[2]
    always = seconds.amin(dim=1) > ATTENDED  # [head, pair]
    otherwise = seconds.masked_fill(torch.eye(n_pairs, dtype=torch.bool), 0).amax(dim=1)
    gated = (seconds.diagonal(dim1=1, dim2=2) > ATTENDED) & (otherwise < NOT_ATTENDED)
    fixed = always.any(dim=0)
    found = first.amin(dim=1) > ATTENDED
    return Fetched(int(fixed.sum()), int((gated.any(dim=0) & ~fixed).sum()), n_pairs, int(found.sum()))


def carried_by_x1(model: Transformer, task: Task) -> float:
    """Return the share of x2's answers that follow an exchange of x1 at the query after the first layer."""
    from circuits.interchange.interchange import interchange

    result = interchange(model, task, n_examples=EXAMPLES // 2, seed=FRESH_SEED, progress=lambda share: None)
    variable = [one.name for one in result.variables].index("x1")
    return result.accuracy[variable, 1, result.roles.index("query"), result.components.index("x2")].item()


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
    kept = read(folder)
    if any(run.steps != steps for run in kept):
        raise BadInput(f"{file}: holds runs of {kept[0].steps} steps; choose another folder")
    done = {(run.seed, run.point): run for run in kept}
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
    the bound. Of the runs that learned the symbol: ``by_position``, the number that fetch all pairs by position, and
    ``by_way_of_x1``, the number whose x2 goes through x1 at the query.
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
    below = [run for run in outcomes if run.below_bound]
    single = sum(run.n_layers == 1 for run in outcomes)
    found.append(f"{len(below)} of {single} models of one layer have a loss clearly below the bound by heads.")
    learned = [run for run in outcomes if run.loss < LEARNED]
    blocks = [run.by_position for run in learned if run.step_order is StepOrder.LAST_FIRST]
    two = [run.through_x1 for run in learned if run.by_way_of_x1 is not None]
    complete = len(every) == len(POINTS) and all(row["runs"] >= SEEDS for row in every)
    found.append(_stated(blocks, "fetch all pairs by position (pairs within blocks)", complete))
    found.append(_stated(two, "bring x2 by way of x1 at the query (two layers)", complete))
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

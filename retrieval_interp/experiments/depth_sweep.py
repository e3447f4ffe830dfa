"""The depth sweep: the symbols learned with each number of layers, and the prediction of information flow (section 5).

By the paper's assumptions, later symbols of a chain need more layers. The assumptions need not hold in every model. If
the members of a pair are neighbours at fixed positions, heads can fetch pairs by position, and an MLP can compare them
(``depth.layers_by_position``). So models are trained in every combination of three properties: attention only or with
MLPs, one head or eight, pairs shuffled within their blocks or over the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import Any

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.losses.interval import Interval
from circuits.model.transformer import Transformer
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, train_in_intervals
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from retrieval_interp.tasks.task import Task
from retrieval_interp.theory.depth import layers_by_position, layers_causal
from retrieval_interp.training.training_step import TrainingStep

# Partial losses. A model that knows the four candidates, but nothing about the chain in question, scores 0.75. If pairs
# are shuffled over the sequence, a model that cannot tell first from second members either scores 0.80 for x1: the best
# multiple of 2 x1 + x2, summed over the chains, is a tenth. A run ends when all symbols are mastered.
NOTHING_KNOWN, KNOWN_IN_PART, LEARNED, MASTERED = 0.75, 0.7, 0.5, 0.05
FRESH, FRESH_SEED = 2048, 0  # the number and the seed of the examples that give the final losses


class MLPs(StrEnum):
    """The layers that have an MLP, which can compare what heads fetched."""

    NONE = "none"
    LAST = "last"
    EVERY = "every"


@dataclass(frozen=True)
class TrainingCondition:
    """Properties of a model and its task that may decide whether Assumption 1 holds.

    Attributes:
        step_order: ``last_first``, with pairs shuffled within blocks at fixed positions, or ``any``.
        n_heads: the number of heads per layer; together they are as wide as the model.
        mlps: the layers that have an MLP.
    """

    step_order: StepOrder
    n_heads: int
    mlps: MLPs

    def __str__(self) -> str:
        where = "over the sequence" if self.step_order is StepOrder.ANY else "within blocks"
        heads = "one head" if self.n_heads == 1 else f"{self.n_heads} heads"
        mlps = {MLPs.NONE: "attention only", MLPs.LAST: "MLP in the last layer", MLPs.EVERY: "MLPs"}[self.mlps]
        return f"{mlps}, {heads}, pairs shuffled {where}"


CONDITIONS = tuple(
    TrainingCondition(order, heads, mlps)
    for mlps, heads, order in product((MLPs.NONE, MLPs.EVERY), (1, 8), (StepOrder.LAST_FIRST, StepOrder.ANY))
)


@dataclass(frozen=True)
class Point:
    """A model to train: the number of hops D, the number of layers, and the condition."""

    n_steps: int
    n_layers: int
    condition: TrainingCondition

    def preset(self, steps: int) -> Preset:
        """Return the preset of the model: width 64, batches of 128, learning rate 0.002."""
        heads, mlp = self.condition.n_heads, self.condition.mlps is not MLPs.NONE
        return Preset(
            RetrievalTask(self.n_steps, step_order=self.condition.step_order),
            Architecture(self.n_layers, heads, d_model=64, d_head=64 // heads, mlp=mlp),
            Recipe(steps=steps, batch=128, training_examples=2**17, lr=2e-3),
        )


def points(hops: Sequence[int]) -> list[Point]:
    """Return the models for some numbers of hops D: 1 to ``layers_causal(D)`` layers, under every condition.

    With D = 1 there is only one block, so shuffling within blocks is the same as shuffling over the sequence.
    """
    return [
        Point(n_steps, n_layers, condition)
        for n_steps in hops
        for n_layers in range(1, layers_causal(n_steps) + 1)
        for condition in CONDITIONS
        if n_steps > 1 or condition.step_order is not StepOrder.ANY
    ]


@dataclass(frozen=True)
class Run:
    """One trained model, and what it learned.

    Attributes:
        n_steps: D, the number of hops.
        step_order: the order of the pairs, from the condition.
        n_heads: the number of heads per layer, from the condition.
        mlps: the layers that have an MLP, from the condition.
        n_layers: the number of layers.
        seed: the seed of weights and data.
        steps: the largest number of training steps.
        stopped: the step at which the run ended; less than ``steps`` if all symbols were mastered earlier.
        losses: for every symbol the squared error on fresh examples.
    """

    n_steps: int
    step_order: StepOrder
    n_heads: int
    mlps: MLPs
    n_layers: int
    seed: int
    steps: int
    stopped: int
    losses: dict[str, float]

    def __post_init__(self) -> None:
        if self.point not in points([self.n_steps]) or min(self.losses.values(), default=-1) < 0:
            raise ValueError("a model that is not in the depth sweep, or a loss below 0")
        if list(self.losses) != [f"x{k}" for k in range(1, self.n_steps + 1)]:
            raise ValueError(f"losses of {', '.join(self.losses)}; expected x1 to x{self.n_steps}")

    @property
    def point(self) -> Point:
        """The model that was trained."""
        return Point(self.n_steps, self.n_layers, TrainingCondition(self.step_order, self.n_heads, self.mlps))


Key = tuple[int, Point]  # the seed, and the model


def trained(
    key: Key, steps: int, progress: Callable[[float], None] = lambda share: None
) -> tuple[Transformer, Task, int]:
    """Train one model until every symbol is mastered, or for all steps.

    Returns:
        the model, its task, and the step at which training ended.
    """
    from retrieval_interp.models.build import VectorTransformer

    seed, point = key
    preset = point.preset(steps)
    model = VectorTransformer(preset.config, seed)
    if point.condition.mlps is MLPs.LAST:
        for block in model.blocks[:-1]:  # an MLP that writes nothing, stays as it is, and need not be computed
            for weight in block.mlp.parameters():
                torch.nn.init.zeros_(weight).requires_grad_(False)
            block.cfg = copy(block.cfg)
            block.cfg.attn_only = True
    take_step = TrainingStep(model, preset.task, preset.recipe)
    take_step.compile()
    step = 0
    for step, losses in train_in_intervals(take_step, seed):
        progress(step / steps)
        if max(losses) < MASTERED:
            break
    return model, preset.task, step


def fresh_losses(model: Transformer, task: Task) -> Float[torch.Tensor, "example component"]:
    """Return the losses on examples that no model was trained on."""
    examples = task.examples(FRESH, FRESH_SEED)
    with torch.no_grad():
        return task.losses(model(examples.inputs), examples)


def train_point(key: Key, steps: int, progress: Callable[[float], None] = lambda share: None) -> Run:
    """Train one model until every symbol is mastered, or for all steps, and return what it learned."""
    seed, point = key
    own = point.condition
    model, task, stopped = trained(key, steps, progress)
    final = dict(zip(task.loss_components, fresh_losses(model, task).mean(dim=0).tolist(), strict=True))
    return Run(point.n_steps, own.step_order, own.n_heads, own.mlps, point.n_layers, seed, steps, stopped, final)


def experiment(
    hops: Sequence[int], n_seeds: int, steps: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Run]:
    """Train every model with every seed, the fewest hops first; runs that are in the folder are not repeated.

    Raises:
        BadInput: the folder holds runs of another length, or its file is damaged.
    """
    file = folder / RUNS
    wanted = [(seed, point) for n_steps in hops for seed in range(n_seeds) for point in points([n_steps])]
    check_length(wanted[0][1].preset(steps).recipe)

    def done() -> dict[Key, Run]:
        kept = read(folder)
        if any(run.steps != steps for run in kept):
            raise BadInput(f"{file}: holds runs of {kept[0].steps} steps; choose another folder")
        return {(run.seed, run.point): run for run in kept}

    return all_runs(wanted, done, file, lambda key, share: train_point(key, steps, share), progress)


def read(folder: Path) -> list[Run]:
    """Read the runs in a folder.

    Raises:
        BadInput: the file of the runs is damaged.
    """
    return read_runs(folder / RUNS, Run)


def table(runs: Sequence[Run]) -> pd.DataFrame:
    """Return a table with one row for each model and symbol.

    Columns: ``hops``; ``layers``; ``world``, the condition; ``symbol``; ``assumed``, the layers needed by the paper's
    assumptions; ``by_position``, the layers needed if pairs are fetched by position; ``runs``; ``learned``, the number
    of runs with a loss below 0.5; ``share_low`` and ``share_high``, Wilson's 95% interval of the share of these;
    ``in_part``, the number of other runs with a loss below 0.7; ``loss``, ``low`` and ``high``, the mean, the lowest
    and the highest loss over seeds.
    """
    rows: list[dict[str, Any]] = []
    for point in dict.fromkeys(run.point for run in runs):
        own = [run for run in runs if run.point == point]
        for symbol in own[0].losses:
            losses = torch.tensor([run.losses[symbol] for run in own], dtype=torch.float64)
            hop, learned = int(symbol[1:]), int((losses < LEARNED).sum())
            share = Interval.of_share(learned, len(own))
            rows.append(
                {
                    "hops": point.n_steps,
                    "layers": point.n_layers,
                    "world": str(point.condition),
                    "symbol": symbol,
                    "assumed": layers_causal(hop),
                    "by_position": layers_by_position(hop),
                    "runs": len(own),
                    "learned": learned,
                    "share_low": share.low,
                    "share_high": share.high,
                    "in_part": int(((losses >= LEARNED) & (losses < KNOWN_IN_PART)).sum()),
                    "loss": losses.mean().item(),
                    "low": losses.min().item(),
                    "high": losses.max().item(),
                }
            )
    return pd.DataFrame(rows)


def sentences(runs: Sequence[Run]) -> list[str]:
    """Return for every number of hops and condition whether symbols were learned with too few layers, in words."""
    rows, found = table(runs), []
    for (hops, condition), own in rows.groupby(["hops", "world"], sort=False):
        short, enough = own[own["layers"] < own["assumed"]], own[own["layers"] >= own["assumed"]]
        against = short[short["learned"] + short["in_part"] > 0]
        if short.empty:
            sentence = "no model has too few layers for any symbol."
        elif against.empty:
            models = int(short.groupby("layers")["runs"].first().sum())
            sentence = (
                f"no symbol was learned with too few layers. None of {models} models learned anything about a symbol "
                "for which it has too few layers (95%: at most "
                f"{Interval.of_share(0, models).high:.0%} of such models do). The lowest loss is "
                f"{short['low'].min():.2f}; a model that guesses among the candidates scores {NOTHING_KNOWN}."
            )
        else:
            broken = "; ".join(
                f"{row.symbol} with {row.layers} instead of {row.assumed} layers was learned in {row.learned} "
                f"and partly learned in {row.in_part} of {row.runs} runs (95%: learned in {row.share_low:.0%} to "
                f"{row.share_high:.0%} of such runs; lowest loss {row.low:.3f})"
                for row in against.itertuples()
            )
            sentence = f"learned with fewer layers than information flow asks for: {broken}."
        missed = enough[enough["learned"] < enough["runs"]]
        if len(missed):
            listed = "; ".join(
                f"{row.symbol} with {row.layers} layers in {row.learned} of {row.runs} runs"
                for row in missed.itertuples()
            )
            sentence += f" Not always learned with enough layers: {listed}."
        found.append(f"D = {hops}, {condition}: {sentence}")
    return found

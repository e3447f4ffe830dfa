"""Which symbols are learned with how many layers, beside what information flow predicts (paper, section 5).

By the paper's assumptions xk takes more layers the further away it is. They need not hold under every condition.
The members of a pair stand side by side at fixed positions, so that heads can fetch pairs by position and an MLP can
compare them (``depth.layers_by_position``); so models are trained in every combination of three things: attention only
or with MLPs, one head or eight, pairs shuffled within their blocks or over the whole sequence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.losses.interval import Interval
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, stretches
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from retrieval_interp.theory.depth import layers_by_position, layers_causal
from retrieval_interp.training.training_step import TrainingStep

# Partial losses: who knows the four candidates and nothing of the own chain comes to 0.75. (Where pairs are shuffled
# over the sequence, who does not tell first from second members either comes to 0.80 for x1: the best multiple of
# 2 x1 + x2, summed over the chains, is a tenth.) A run in which all symbols are mastered ends.
NOTHING_KNOWN, KNOWN_IN_PART, LEARNED, MASTERED = 0.75, 0.7, 0.5, 0.05
FRESH, FRESH_SEED = 2048, 0  # examples on which a run is scored


@dataclass(frozen=True)
class World:
    """What may make a difference to Assumption 1.

    Attributes:
        step_order: ``last_first``, pairs shuffled within blocks that stand at fixed positions, or ``any``.
        n_heads: in every layer, together as wide as the model.
        mlp: whether MLPs can compare what heads fetched.
    """

    step_order: StepOrder
    n_heads: int
    mlp: bool

    def __str__(self) -> str:
        where = "over the sequence" if self.step_order is StepOrder.ANY else "within blocks"
        heads = "one head" if self.n_heads == 1 else f"{self.n_heads} heads"
        return f"{'MLPs' if self.mlp else 'attention only'}, {heads}, pairs shuffled {where}"


WORLDS = tuple(
    World(order, heads, mlp)
    for mlp, heads, order in product((False, True), (1, 8), (StepOrder.LAST_FIRST, StepOrder.ANY))
)


@dataclass(frozen=True)
class Point:
    """A model to train: so many layers, for so many hops, in a world."""

    n_steps: int
    n_layers: int
    world: World

    def preset(self, steps: int) -> Preset:
        """Width 64, batches of 128, lr 0.002."""
        heads = self.world.n_heads
        return Preset(
            RetrievalTask(self.n_steps, step_order=self.world.step_order),
            Architecture(self.n_layers, heads, d_model=64, d_head=64 // heads, mlp=self.world.mlp),
            Recipe(steps=steps, batch=128, training_examples=2**17, lr=2e-3),
        )


def points(hops: Sequence[int]) -> list[Point]:
    """For every number of hops up to the layers that they take by assumption, in every world that is different.

    The pairs of a single hop make one block: to shuffle them within it is to shuffle them over the sequence.
    """
    return [
        Point(n_steps, n_layers, world)
        for n_steps in hops
        for n_layers in range(1, layers_causal(n_steps) + 1)
        for world in WORLDS
        if n_steps > 1 or world.step_order is not StepOrder.ANY
    ]


@dataclass(frozen=True)
class Run:
    """What one model learned.

    Attributes:
        n_steps: D.
        step_order: of its world.
        n_heads: of its world.
        mlp: of its world.
        n_layers: its own.
        seed: of weights and data.
        steps: for how long it was to be trained.
        stopped: the step at which it ended; earlier where all was mastered.
        losses: for every symbol the squared error on fresh examples.
    """

    n_steps: int
    step_order: StepOrder
    n_heads: int
    mlp: bool
    n_layers: int
    seed: int
    steps: int
    stopped: int
    losses: dict[str, float]

    def __post_init__(self) -> None:
        if self.point not in points([self.n_steps]) or min(self.losses.values(), default=-1) < 0:
            raise ValueError("an unknown point, or a loss that is none")
        if list(self.losses) != [f"x{k}" for k in range(1, self.n_steps + 1)]:
            raise ValueError(f"losses of {', '.join(self.losses)}; expected x1 to x{self.n_steps}")

    @property
    def point(self) -> Point:
        """What was trained."""
        return Point(self.n_steps, self.n_layers, World(self.step_order, self.n_heads, self.mlp))


Key = tuple[int, Point]  # a seed comes first


def train_point(key: Key, steps: int, progress: Callable[[float], None] = lambda share: None) -> Run:
    """Train one model, until every symbol is mastered or the steps are over."""
    from retrieval_interp.models.build import VectorTransformer

    seed, point = key
    chosen, world = point.preset(steps), point.world
    model = VectorTransformer(chosen.config, seed)
    take_step = TrainingStep(model, chosen.task, chosen.recipe)
    take_step.compile()
    step = 0
    for step, parts in stretches(take_step, seed):
        progress(step / steps)
        if max(parts) < MASTERED:
            break
    examples = chosen.task.examples(FRESH, FRESH_SEED)
    with torch.no_grad():
        losses = chosen.task.losses(model(examples.inputs), examples).mean(dim=0).tolist()
    scored = dict(zip(chosen.task.loss_components, losses, strict=True))
    return Run(point.n_steps, world.step_order, world.n_heads, world.mlp, point.n_layers, seed, steps, step, scored)


def experiment(
    hops: Sequence[int], n_seeds: int, steps: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Run]:
    """Train every point with every seed, the fewest hops first; runs that the folder holds are not repeated.

    Raises:
        BadInput: the folder holds runs of another length, or its file is damaged.
    """
    file = folder / RUNS
    wanted = [(seed, point) for n_steps in hops for seed in range(n_seeds) for point in points([n_steps])]
    check_length(wanted[0][1].preset(steps).recipe)
    done = read(folder)
    for run in done:
        if run.steps != steps:
            raise BadInput(f"{file}: holds runs of {run.steps} steps; choose another folder")
    there = {(run.seed, run.point): run for run in done}
    return all_runs(wanted, there, file, lambda key, told: train_point(key, steps, told), progress)


def read(folder: Path) -> list[Run]:
    """The runs that a folder holds.

    Raises:
        BadInput: its file is damaged.
    """
    return read_runs(folder / RUNS, Run)


def table(runs: Sequence[Run]) -> pd.DataFrame:
    """One row for each point and symbol.

    Columns: ``hops``, ``layers``, ``world``, ``symbol``; the layers that it takes by the paper's assumptions,
    ``assumed``, and if pairs are fetched by position, ``by_position``; ``runs``, and ``learned``, how many of them came
    below 0.5, with Wilson's 95% interval of that share, ``share_low`` to ``share_high``; ``in_part``, how many others
    came below 0.7; the mean ``loss`` over seeds, the lowest, ``low``, and the highest, ``high``.
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
                    "world": str(point.world),
                    "symbol": symbol,
                    "assumed": layers_causal(hop),
                    "by_position": layers_by_position(hop),
                    "runs": len(own),
                    "learned": learned,
                    **{"share_low": share.low, "share_high": share.high},
                    "in_part": int(((losses >= LEARNED) & (losses < KNOWN_IN_PART)).sum()),
                    **{"loss": losses.mean().item(), "low": losses.min().item(), "high": losses.max().item()},
                }
            )
    return pd.DataFrame(rows)


def sentences(runs: Sequence[Run]) -> list[str]:
    """For every world and number of hops: does the bound of the paper's assumptions hold, in words."""
    rows, said = table(runs), []
    for (hops, world), own in rows.groupby(["hops", "world"], sort=False):
        short, enough = own[own["layers"] < own["assumed"]], own[own["layers"] >= own["assumed"]]
        against = short[short["learned"] + short["in_part"] > 0]
        if short.empty:
            said.append(f"D = {hops}, {world}: no model has fewer layers than a symbol takes.")
        elif against.empty:
            models = int(short.groupby("layers")["runs"].first().sum())
            said.append(
                f"D = {hops}, {world}: the bound is not broken; none of {models} models learned anything of a symbol "
                f"for which it has too few layers (95%: at most {Interval.of_share(0, models).high:.0%} of such models "
                f"do; lowest loss {short['low'].min():.2f}, who knows nothing comes to {NOTHING_KNOWN})."
            )
        else:
            broken = "; ".join(
                f"{row.symbol} with {row.layers} instead of {row.assumed} layers was learned in {row.learned} "
                f"and known in part in {row.in_part} of {row.runs} runs (95%: learned in {row.share_low:.0%} to "
                f"{row.share_high:.0%} of such ones; lowest loss {row.low:.3f})"
                for row in against.itertuples()
            )
            said.append(f"D = {hops}, {world}: the bound does not hold: {broken}.")
        missed = enough[enough["learned"] < enough["runs"]]
        if len(missed):
            listed = "; ".join(
                f"{row.symbol} with {row.layers} in {row.learned} of {row.runs}" for row in missed.itertuples()
            )
            said[-1] += f" Not always found where it is possible: {listed}."
    return said

"""Interventions: training with attention paths forced or forbidden. Is the order in which heads emerge causal?

This goes beyond the paper. The paper observes that an induction head emerges first and that the other heads reuse it
(section 9, i to iii). Here a path is forced from the first step, or forbidden throughout; everything else is trained as
usual. With the same seed, every condition starts from the same weights and uses the same data, so runs can be compared
seed by seed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from circuits.ablation.clamping import Clamp, clamped
from circuits.circuit import Head
from circuits.errors import BadInput
from circuits.losses.interval import Interval
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, train_in_intervals
from retrieval_interp.models.presets import Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import Task
from retrieval_interp.training.curves import EMERGED, first_below
from retrieval_interp.training.training_step import TrainingStep

CONDITIONS = {
    "free": "no path is forced or forbidden",
    "joined": "L0H0 joins the members of every pair from the start: the lower half of an induction head",
    "induction": "the same, and L1H0 attends from the query to pair1.second: x1 is available from the start",
    "not joined": "no head may attend from a second member of a pair to any first member, as an induction head needs",
    "no x1": "no head may attend from a query to any position that holds an x1",
}


def clamps(condition: str, task: Task) -> tuple[Clamp, ...]:
    """Return the clamps of a condition.

    Raises:
        BadInput: the task is not a retrieval problem with D of at least 2, so no head comes after the induction head.
    """
    if not isinstance(task, RetrievalTask) or task.n_steps < 2:
        raise BadInput(f"{task}: no head comes after the induction head; expected a retrieval problem of D from 2")
    joined = {f"pair{k}.second": f"pair{k}.first" for k in range(1, task.n_steps + 1)}
    lower = Clamp(joined, Head(0, 0), forced=True)
    upper = Clamp({"query": "pair1.second"}, Head(1, 0), forced=True)
    return {
        "free": (),
        "joined": (lower,),
        "induction": (lower, upper),
        "not joined": (Clamp(joined),),
        "no x1": (Clamp({"query": "pair1.second"}), Clamp({"query": "pair2.first"})),
    }[condition]


class ClampedStep(TrainingStep):
    """A training step with attention paths forced or forbidden."""

    def __init__(self, model: Transformer, task: Task, recipe: Recipe, clamps: Sequence[Clamp] = ()) -> None:
        super().__init__(model, task, recipe)
        self.clamps = clamps
        self.forward = model  # clamps are hooks, and the training pass has none

    def losses(self, examples: Examples) -> torch.Tensor:
        """Return the training losses averaged over a batch, ``[component]``."""
        with clamped(self.model, self.clamps, examples.roles):
            return super().losses(examples)


@dataclass(frozen=True)
class Outcome:
    """The result of one run, which ends when every symbol is learned.

    Attributes:
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        preset: the name of the preset.
        steps: the largest number of training steps.
        learned: for every symbol, the first step at which its partial loss is below 0.5, interpolated between means
            over 20 steps; None if it never is.
    """

    condition: str
    seed: int
    preset: str
    steps: int
    learned: dict[str, float | None]

    def __post_init__(self) -> None:
        within = all(step is None or 0 <= step <= self.steps for step in self.learned.values())
        if self.condition not in CONDITIONS or not within:
            raise ValueError("an unknown condition, or a step outside the run")

    def steps_to_learn(self, symbol: str) -> float:
        """Return the step at which a symbol was learned, or the number of all steps if it was not."""
        step = self.learned[symbol]
        return float(self.steps if step is None else step)


def train_clamped(
    name: str, chosen: Preset, condition: str, seed: int, progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Train a preset once under a condition.

    Args:
        name: the name of the preset.
        chosen: the preset.
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        progress: is called with the finished share of the steps, 0 to 1.

    Raises:
        BadInput: the clamped paths do not fit the preset.
    """
    from retrieval_interp.models.build import VectorTransformer

    task, recipe = chosen.task, chosen.recipe
    take_step = ClampedStep(VectorTransformer(chosen.config, seed), task, recipe, clamps(condition, task))
    curves: dict[str, dict[int, float]] = {symbol: {} for symbol in task.loss_components}
    learned: dict[str, float | None] = {}
    for step, losses in train_in_intervals(take_step, seed):
        for curve, loss in zip(curves.values(), losses, strict=True):
            curve[step] = loss
        progress(step / recipe.steps)
        learned = {symbol: first_below(curve, EMERGED) for symbol, curve in curves.items()}
        if None not in learned.values():
            break
    return Outcome(condition, seed, name, recipe.steps, learned)


def experiment(
    name: str, chosen: Preset, n_seeds: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Outcome]:
    """Train under every condition with every seed; runs that are in the folder are not repeated.

    Raises:
        BadInput: the folder holds runs of another preset or length, or its file is damaged.
    """
    task = chosen.task
    check_length(chosen.recipe)
    each = [clamps(condition, task) for condition in CONDITIONS]
    file = folder / RUNS

    def done() -> dict[tuple[str, int], Outcome]:
        kept = read_runs(file, Outcome)
        for one in kept:
            if list(one.learned) != list(task.loss_components):
                raise BadInput(f"{file}: holds runs with the symbols {', '.join(one.learned)}; choose another folder")
            if (one.preset, one.steps) != (name, chosen.recipe.steps):
                raise BadInput(f"{file}: holds runs of {one.preset} with {one.steps} steps; choose another folder")
        return {(one.condition, one.seed): one for one in kept}

    done()  # a damaged file is reported first
    from retrieval_interp.models.build import VectorTransformer

    for own in each:  # check that the clamps fit the preset before anything is trained
        with clamped(VectorTransformer(chosen.config), own, task.examples(1, 0).roles):
            pass
    wanted = [(condition, seed) for seed, condition in product(range(n_seeds), CONDITIONS)]
    return all_runs(wanted, done, file, lambda key, share: train_clamped(name, chosen, *key, share), progress)


def summary(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a table with one row for each condition and symbol.

    Columns: ``runs``; ``learned``, the number of runs that learned the symbol; ``step``, the mean step at which they
    did; ``later``, ``low`` and ``high``, the mean difference to the free run of the same seed, with its 95% bootstrap
    interval over seeds. A run that did not learn the symbol counts with all its steps; ``step`` and ``later`` are then
    limited by the length of the run.
    """
    free = {outcome.seed: outcome for outcome in outcomes if outcome.condition == "free"}
    rows: list[dict[str, Any]] = []
    for condition in CONDITIONS:
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        for symbol in own[0].learned:
            steps = torch.tensor([outcome.steps_to_learn(symbol) for outcome in own])
            later = Interval.of(steps - torch.tensor([free[o.seed].steps_to_learn(symbol) for o in own]), seed=0)
            rows.append(
                {
                    "condition": condition,
                    "symbol": symbol,
                    "runs": len(own),
                    "learned": sum(outcome.learned[symbol] is not None for outcome in own),
                    "step": steps.mean().item(),
                    "later": later.mean,
                    "low": later.low,
                    "high": later.high,
                }
            )
    return pd.DataFrame(rows)


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """Return one sentence for every condition, about the last symbol."""
    last = list(outcomes[0].learned)[-1]
    of_free = sum(outcome.learned[last] is not None for outcome in outcomes if outcome.condition == "free")
    found = []
    for row in summary(outcomes).to_dict(orient="records"):
        if row["symbol"] != last:
            continue
        condition, learned, runs = row["condition"], row["learned"], row["runs"]
        sentence = f"{condition} ({CONDITIONS[condition]}): {last} was learned in {learned} of {runs} runs"
        if learned == runs:
            sentence += f", at step {row['step']:.0f} on average"
        if condition != "free" and of_free == runs:
            bound = "" if learned == runs else "at least "
            interval = f"[{row['low']:+.0f}, {row['high']:+.0f}]"
            sentence += f"; {bound}{row['later']:+.0f} steps compared with free {interval}"
        found.append(sentence + ".")
    return found

"""Is the order in which heads emerge causal? A small preset trained again and again, with paths held fast.

Beyond the paper, which observes that an induction head comes first and that the others reuse it (section 9, i to iii).
Here a path is forced on from the first step, or forbidden throughout, and everything else is left to training.
Every condition sees the same weights and the same data for the same seed, so that seeds pair up.
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
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch, transformer_lens
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, stretches
from retrieval_interp.models.presets import Preset, Recipe
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.task import Task
from retrieval_interp.training.curves import EMERGED, first_below
from retrieval_interp.training.training_step import TrainingStep

CONDITIONS = {
    "free": "nothing is held fast",
    "joined": "L0H0 joins both members of every pair from the start: the lower half of an induction head",
    "induction": "the same, and L1H0 leads the query to pair1.second: x1 is there from the start",
    "not joined": "no head may look from a second member of a pair to any first one, as an induction head needs it",
    "no x1": "no head may look from a query to any position that holds an x1",
}


def clamps(condition: str, task: Task) -> tuple[Clamp, ...]:
    """What is held fast in a condition.

    Raises:
        BadInput: the task is no chain of two steps or more, so that no head comes after the induction head.
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
    """A training step with paths held fast."""

    def __init__(
        self, model: transformer_lens.HookedTransformer, task: Task, recipe: Recipe, clamps: Sequence[Clamp] = ()
    ) -> None:
        super().__init__(model, task, recipe)
        self.clamps = clamps

    def losses(self, examples: Examples) -> torch.Tensor:
        """Partial losses averaged over a batch, ``[part]``."""
        with clamped(self.model, self.clamps, examples.roles):
            return super().losses(examples)


@dataclass(frozen=True)
class Outcome:
    """What became of one run, which ends when everything is learned.

    Attributes:
        condition: what was held fast.
        seed: of weights and data.
        preset: what was trained.
        steps: how long at most.
        learned: for every symbol the first step at which its partial loss is below 0.5, interpolated between means
            over 20 steps, or None.
    """

    condition: str
    seed: int
    preset: str
    steps: int
    learned: dict[str, float | None]

    def __post_init__(self) -> None:
        within = all(step is None or 0 <= step <= self.steps for step in self.learned.values())
        if self.condition not in CONDITIONS or not within:
            raise ValueError("unknown condition, or a step outside of the run")

    def waited(self, symbol: str) -> float:
        """When a symbol was learned; all steps if it never was."""
        step = self.learned[symbol]
        return float(self.steps if step is None else step)


def train_clamped(
    name: str, chosen: Preset, condition: str, seed: int, progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Train a preset once under a condition.

    Args:
        name: the preset's.
        chosen: the preset.
        condition: one of ``CONDITIONS``.
        seed: of weights and data.
        progress: is told the finished share of the steps, 0 to 1.

    Raises:
        BadInput: the paths held fast do not fit the preset.
    """
    from retrieval_interp.models.build import VectorTransformer

    task, recipe = chosen.task, chosen.recipe
    held = clamps(condition, task)
    take_step = ClampedStep(VectorTransformer(chosen.config, seed), task, recipe, held)
    losses: dict[str, dict[int, float]] = {part: {} for part in task.loss_components}
    learned: dict[str, float | None] = {}
    for step, parts in stretches(take_step, seed):
        for part, loss in zip(task.loss_components, parts, strict=True):
            losses[part][step] = loss
        progress(step / recipe.steps)
        learned = {part: first_below(curve, EMERGED) for part, curve in losses.items()}
        if None not in learned.values():
            break
    return Outcome(condition, seed, name, recipe.steps, learned)


def experiment(
    name: str,
    chosen: Preset,
    n_seeds: int,
    folder: Path,
    progress: Callable[[float], None] = lambda share: None,
) -> list[Outcome]:
    """Train every condition with every seed; runs that the folder holds already are not repeated.

    Raises:
        BadInput: the folder holds runs of another preset or length, or its file is damaged.
    """
    task = chosen.task
    check_length(chosen.recipe)
    held = [clamps(condition, task) for condition in CONDITIONS]
    file = folder / RUNS
    done = read_runs(file, Outcome)
    for outcome in done:
        if list(outcome.learned) != list(task.loss_components):
            raise BadInput(f"{file}: holds runs that learn {', '.join(outcome.learned)}; choose another folder")
        if (outcome.preset, outcome.steps) != (name, chosen.recipe.steps):
            raise BadInput(f"{file}: holds runs of {outcome.preset} with {outcome.steps} steps; choose another folder")
    from retrieval_interp.models.build import VectorTransformer

    for clamping in held:  # what does not fit shows before anything is trained
        with clamped(VectorTransformer(chosen.config), clamping, task.examples(1, 0).roles):
            pass
    there = {(outcome.condition, outcome.seed): outcome for outcome in done}
    wanted = [(condition, seed) for seed, condition in product(range(n_seeds), CONDITIONS)]
    return all_runs(wanted, there, file, lambda key, told: train_clamped(name, chosen, *key, told), progress)


def summary(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """One row for each condition and symbol.

    Columns: ``runs``; ``learned``, how many of them did; ``step``, the mean; ``later``, ``low`` and ``high``: the mean
    difference to the free run of the same seed, with its 95% bootstrap interval over seeds. A run that never learned it
    counts with all its steps: ``step`` and ``later`` are then no more than what was waited for.
    """
    free = {outcome.seed: outcome for outcome in outcomes if outcome.condition == "free"}
    rows: list[dict[str, Any]] = []
    for condition in CONDITIONS:
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        for symbol in own[0].learned:
            steps = torch.tensor([outcome.waited(symbol) for outcome in own])
            later = Interval.of(steps - torch.tensor([free[o.seed].waited(symbol) for o in own]), seed=0)
            rows.append(
                {
                    "condition": condition,
                    "symbol": symbol,
                    "runs": len(own),
                    "learned": sum(outcome.learned[symbol] is not None for outcome in own),
                    "step": steps.mean().item(),
                    **{"later": later.mean, "low": later.low, "high": later.high},
                }
            )
    return pd.DataFrame(rows)


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """What was found of the last symbol, condition by condition, in words."""
    last = list(outcomes[0].learned)[-1]
    of_free = sum(outcome.learned[last] is not None for outcome in outcomes if outcome.condition == "free")
    said = []
    for row in summary(outcomes).to_dict(orient="records"):
        if row["symbol"] != last:
            continue
        condition, learned, runs = row["condition"], row["learned"], row["runs"]
        sentence = f"{condition} ({CONDITIONS[condition]}): {last} learned in {learned} of {runs} runs"
        if learned == runs:
            sentence += f", at step {row['step']:.0f} on average"
        if condition != "free" and learned == runs == of_free:
            sentence += f"; {row['later']:+.0f} steps against free [{row['low']:+.0f}, {row['high']:+.0f}]"
        elif condition != "free" and of_free == runs:
            low, high = row["low"], row["high"]
            sentence += f"; at least {row['later']:+.0f} steps against free [{low:+.0f}, {high:+.0f}]"
        said.append(sentence + ".")
    return said

"""Thinking without words: do a model's own residual streams, read again, extend its depth as written symbols do?

A model of two layers goes on after the queries and reads words, its thoughts, or nothing (training/thinking_pass.py).
docs/protocol.md has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.losses.interval import Interval
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, train_in_intervals
from retrieval_interp.models.presets import Architecture, Preset, Recipe
from retrieval_interp.tasks.thinking import PAUSES, THOUGHTS, WORDS, ThinkingTask
from retrieval_interp.theory.writing import hops, thinking_hops
from retrieval_interp.training.curves import EMERGED, first_below
from retrieval_interp.training.training_step import TrainingStep

AT_ONCE = "at once"
CONDITIONS = {
    WORDS: "the model reads the symbols that it wrote",
    THOUGHTS: "the model reads its residual stream after the last layer",
    PAUSES: "the model reads nothing",
    AT_ONCE: "the model answers at the query",
}
CUT = "thoughts, cut"  # models of thoughts that get pauses instead
MOST, FEW = 0.8, 0.2  # the shares of runs for the decisions
SEEDS = 5  # the least number of runs of every condition for a decision
EXAMPLES = 1024  # fresh examples for the losses
N_LAYERS = 2


def preset(n_steps: int, steps: int, condition: str) -> Preset:
    """Return what is trained under a condition: D = ``n_steps``, and ``steps`` training steps."""
    return Preset(
        ThinkingTask(n_steps, n_thoughts=0 if condition == AT_ONCE else n_steps - 1),
        Architecture(N_LAYERS, n_heads=4, d_model=64, d_head=16),
        Recipe(steps=steps, batch=64, training_examples=2**16, lr=2e-3),
    )


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        n_steps: D, the number of hops asked for.
        steps: the number of training steps.
        learned: for every training loss, the first step at which it is below 0.5, interpolated between means over 20
            steps; None if it never is.
        losses: every training loss at the end, on fresh examples; with words, the model reads its own.
        with_pauses: the same if a model of thoughts gets pauses instead; else empty.
    """

    condition: str
    seed: int
    n_steps: int
    steps: int
    learned: dict[str, float | None]
    losses: dict[str, float]
    with_pauses: dict[str, float]

    def __post_init__(self) -> None:
        if self.condition not in CONDITIONS:
            raise ValueError("an unknown condition")

    @property
    def reached(self) -> list[int]:
        """The hops reached after 0, 1, ... steps: the most k such that each of x1, ..., xk is learned by then."""
        return reached(self.losses, self.n_steps)


def reached(losses: dict[str, float], n_steps: int) -> list[int]:
    """Return the hops reached after 0 ... D - 1 steps; a symbol is learned where its loss is below 0.5."""
    known: set[int] = set()
    found = []
    for s in range(n_steps):
        names = {k: f"x{k} after {s}" if s else f"x{k}" for k in range(s + 1, n_steps + 1)}
        known |= {k for k, name in names.items() if losses.get(name, 1.0) < EMERGED}
        found.append(next(k for k in range(n_steps + 1) if k + 1 not in known))
    return found


def allowed(condition: str, n_steps: int) -> list[int]:
    """Return the hops that information flow allows after 0 ... D - 1 steps, at most D."""
    lines = {WORDS: partial(hops, N_LAYERS), THOUGHTS: partial(thinking_hops, N_LAYERS)}
    line = lines.get(condition, lambda s: hops(N_LAYERS))
    return [min(n_steps, line(s)) for s in range(n_steps)]


class ThinkingStep(TrainingStep):
    """A training step of a model that goes on after the queries; words are the right ones."""

    def __init__(self, model: Transformer, task: ThinkingTask, recipe: Recipe, reads: str) -> None:
        from retrieval_interp.training.thinking_pass import thinking_pass

        super().__init__(model, task, recipe)
        self.go_on = partial(thinking_pass, model, task, reads=reads)

    def losses(self, examples: Examples) -> torch.Tensor:
        """Return the training losses averaged over a batch, ``[component]``."""
        self.forward = partial(self.go_on, words=examples.targets)
        return super().losses(examples)


def measured(model: Transformer, task: ThinkingTask, reads: str, seed: int) -> dict[str, float]:
    """Return the training losses of a model that reads its own words, on fresh examples with this seed."""
    from retrieval_interp.training.thinking_pass import thinking_pass

    examples = task.examples(EXAMPLES, seed)
    with torch.no_grad():
        losses = task.training_losses(thinking_pass(model, task, examples.inputs, reads), examples).mean(dim=0)
    return dict(zip(task.trained_components, losses.tolist(), strict=True))


def train_once(
    chosen: Preset, condition: str, seed: int, progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Train a preset once under a condition, and measure what it learned.

    Args:
        chosen: the preset; its task is a ``ThinkingTask``.
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        progress: is called with the finished share of the steps, 0 to 1.
    """
    from retrieval_interp.models.build import VectorTransformer

    task = chosen.task
    assert isinstance(task, ThinkingTask)
    model = VectorTransformer(chosen.config, seed)
    curves: dict[str, dict[int, float]] = {component: {} for component in task.trained_components}
    for step, losses in train_in_intervals(ThinkingStep(model, task, chosen.recipe, condition), seed):
        for curve, loss in zip(curves.values(), losses, strict=True):
            curve[step] = loss
        progress(step / chosen.recipe.steps)
    learned = {component: first_below(curve, EMERGED) for component, curve in curves.items()}
    with_pauses = measured(model, task, PAUSES, seed) if condition == THOUGHTS else {}
    own = measured(model, task, condition, seed)
    return Outcome(condition, seed, task.n_steps, chosen.recipe.steps, learned, own, with_pauses)


def experiment(
    n_steps: int, steps: int, n_seeds: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Outcome]:
    """Train under every condition with every seed; runs that are in the folder are not repeated.

    Args:
        n_steps: D, the number of hops.
        steps: the number of training steps.
        n_seeds: the number of seeds.
        folder: the folder of the runs.
        progress: is called with the finished share, 0 to 1.

    Raises:
        BadInput: the folder holds runs of another D or length, or its file is damaged, or a number is out of range.
    """
    presets = {condition: preset(n_steps, steps, condition) for condition in CONDITIONS}
    check_length(presets[AT_ONCE].recipe)
    components = {condition: chosen.task.trained_components for condition, chosen in presets.items()}
    file = folder / RUNS

    def done() -> dict[tuple[str, int], Outcome]:
        kept = read_runs(file, Outcome)
        for one in kept:
            if (one.n_steps, one.steps) != (n_steps, steps):
                held = f"holds runs of D = {one.n_steps} with {one.steps} steps"
                raise BadInput(f"{file}: {held}; choose another folder")
            own = components[one.condition]
            cut = own if one.condition == THOUGHTS else ()
            if not own == (*one.learned,) == (*one.losses,) or (*one.with_pauses,) != cut:
                raise BadInput(f"{file}: {one.condition}, seed {one.seed}: losses are missing, or too many")
        return {(one.condition, one.seed): one for one in kept}

    wanted = [(condition, seed) for seed, condition in product(range(n_seeds), CONDITIONS)]
    return all_runs(
        wanted, done, file, lambda key, share: train_once(presets[key[0]], *key, share), progress
    )  # fmt: skip


def _of(outcomes: Sequence[Outcome], condition: str) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.condition == condition]


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags)


def as_words(outcome: Outcome) -> bool:
    """Whether a run reaches at least s + 1 hops after every s."""
    return all(k >= s + 1 for s, k in enumerate(outcome.reached))


def beyond_words(outcome: Outcome) -> bool:
    """Whether a run reaches more than s + 1 hops after some s."""
    return any(k > s + 1 for s, k in enumerate(outcome.reached))


def verdicts(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return what the rules in docs/protocol.md decide, by question; with fewer than five seeds, what is refuted."""
    control = [outcome.reached[0] for outcome in _of(outcomes, AT_ONCE)]
    enough = min(len(_of(outcomes, condition)) for condition in CONDITIONS) >= SEEDS
    holds = enough and _share([k >= 1 for k in control]) >= MOST and max(control) <= 1
    refuted = [
        condition
        for condition in CONDITIONS
        if any(
            k > most
            for outcome in _of(outcomes, condition)
            for k, most in zip(outcome.reached, allowed(condition, outcome.n_steps), strict=True)
        )
    ]
    found = {"the control": "holds" if holds else "does not hold" if enough else "undecided"}
    found["information flow under Assumption 1"] = f"refuted for {', '.join(refuted)}" if refuted else "not refuted"
    words, thoughts = (_share([as_words(one) for one in _of(outcomes, name)]) for name in (WORDS, THOUGHTS))
    further = _share([beyond_words(one) for one in _of(outcomes, THOUGHTS)])
    paused = _share([one.reached[0] >= 1 for one in _of(outcomes, PAUSES)])
    found["thoughts do what words do"] = _decided(thoughts, holds and words >= MOST)
    found["a thought is worth more than a word"] = _decided(further, holds and (thoughts >= MOST or further >= MOST))
    found["pauses add nothing"] = _decided(1.0, holds and paused >= MOST) if PAUSES not in refuted else "no"
    return found


def _decided(share: float, can_be: bool) -> str:
    if not can_be or FEW < share < MOST:
        return "undecided"
    return "yes" if share >= MOST else "no"


def summary(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a table with one row for every condition and number of steps s.

    Columns: ``steps``, s; ``allowed``, the hops that information flow allows; ``median``, ``low`` and ``high``, the
    hops reached; ``as many``, the runs that reach at least as many as words are allowed, s + 1, with Wilson's 95%
    interval of their share; ``loss``, ``loss_low`` and ``loss_high``, the mean, lowest and highest error of x_(s+1)
    after s steps. The condition ``thoughts, cut`` is that of models of thoughts that get pauses instead.
    """
    rows: list[dict[str, Any]] = []
    for condition in (*CONDITIONS, CUT):
        own = _of(outcomes, THOUGHTS if condition == CUT else condition)
        of_losses = [one.with_pauses if condition == CUT else one.losses for one in own]
        n_steps = own[0].n_steps
        for s in range(1 if condition == AT_ONCE else n_steps):
            each = pd.Series([reached(losses, n_steps)[s] for losses in of_losses])
            errors = pd.Series([losses[f"x{s + 1} after {s}" if s else "x1"] for losses in of_losses])
            enough = int((each >= s + 1).sum())
            share = Interval.of_share(enough, len(own))
            row: dict[str, Any] = {"condition": condition, "steps": s, "allowed": allowed(condition, n_steps)[s]}
            row |= {"runs": len(own), "median": each.median(), "low": each.min(), "high": each.max()}
            row |= {"as many": enough, "share_low": share.low, "share_high": share.high}
            rows.append({**row, "loss": errors.mean(), "loss_low": errors.min(), "loss_high": errors.max()})
    return pd.DataFrame(rows)


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the verdicts, and one sentence for every condition."""
    told = ["; ".join(f"{question}: {answer}" for question, answer in verdicts(outcomes).items()) + "."]
    table = summary(outcomes)
    for condition in dict.fromkeys(table["condition"]):
        rows = table[table["condition"] == condition].to_dict("records")
        hops_reached = ", ".join(
            f"{row['low']}" if row["low"] == row["high"] else f"{row['low']} to {row['high']}" for row in rows
        )
        line = ", ".join(str(row["allowed"]) for row in rows)
        what = CONDITIONS.get(condition, "the same models, and the model reads nothing")
        steps = "0 steps" if len(rows) == 1 else f"0 to {rows[-1]['steps']} steps"
        told.append(
            f"{condition} ({what}): after {steps}, {hops_reached} hops of {line} allowed, in {rows[0]['runs']} runs."
        )
    return told

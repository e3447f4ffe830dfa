"""Thinking ahead: do pairs compute for the queries because later losses train them to? Myopic training.

Pairs and queries both have losses (tasks/next_symbol.py). In myopic training a loss trains its own position only, so
pairs learn what serves their own loss. If the circuit arises all the same, its parts are *breadcrumbs*; if it does not,
they are *pre-caching* (Wu, Morris and Levine, 2024). docs/protocol.md has the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from circuits.ablation.clamping import Clamp, closed_scores
from circuits.errors import BadInput
from circuits.losses.interval import Interval
from circuits.model.transformer import Transformer
from circuits.problem import Examples
from circuits.utils.lazy import pandas as pd
from circuits.utils.lazy import torch
from retrieval_interp.experiments.interventions import clamps
from retrieval_interp.experiments.runs import RUNS, all_runs, check_length, read_runs, train_in_intervals
from retrieval_interp.models.presets import Preset, Recipe
from retrieval_interp.tasks.next_symbol import NextSymbolTask
from retrieval_interp.training.curves import EMERGED, first_below
from retrieval_interp.training.training_step import TrainingStep

CONDITIONS = {
    "ordinary": "a loss trains what all positions compute",
    "myopic": "a loss trains its own position, and the weights that read others",
    "keys and values detached": "a loss trains its own position, and of the weights that read others only the queries",
    "myopic, joined": "as myopic, and L0H0 joins the members of every pair from the start",
}
MOST, FEW = 0.8, 0.2  # the shares of runs for the decision
SEEDS = 5  # the least number of runs of every condition for a decision
EXAMPLES = 1024  # fresh examples for the losses and the probes
ATTENTION_EXAMPLES = 128  # of these, for the attention


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        preset: the name of the preset.
        steps: the number of training steps.
        learned: for every training loss, the first step at which it is below 0.5, interpolated between means over 20
            steps; None if it never is.
        losses: every training loss at the end, on fresh examples.
        attention: the highest average attention of a head, from role to role: from every second member to the first
            one, and from the query to every second member.
        heads: the heads that have it.
        held: the lowest error of a linear probe after any layer, for every symbol at every second member that does not
            hold it itself. It is relative to guessing the mean: 1 says that nothing can be read, 0 that all can. Empty
            if pairs were joined by force, which probes do not know.
        held_at_start: the same before training: attention that is nearly uniform mixes in a little of every symbol.
    """

    condition: str
    seed: int
    preset: str
    steps: int
    learned: dict[str, float | None]
    losses: dict[str, float]
    attention: dict[str, float]
    heads: dict[str, str]
    held: dict[str, float]
    held_at_start: dict[str, float]

    def __post_init__(self) -> None:
        if self.condition not in CONDITIONS:
            raise ValueError("an unknown condition")


class MyopicStep(TrainingStep):
    """A training step in which a loss trains its own position only, with attention paths forced or forbidden."""

    def __init__(
        self,
        model: Transformer,
        task: NextSymbolTask,
        recipe: Recipe,
        train_reading: bool,
        clamps: Sequence[Clamp] = (),
    ) -> None:
        super().__init__(model, task, recipe)
        self.train_reading, self.clamps = train_reading, clamps

    def losses(self, examples: Examples) -> torch.Tensor:
        """Return the training losses averaged over a batch, ``[component]``."""
        from retrieval_interp.training.myopic_pass import myopic_pass

        size = self.model.cfg.n_heads, examples.roles, examples.inputs.shape[1]
        layers = {clamp.head.layer for clamp in self.clamps if clamp.head}
        closed = {layer: closed_scores(self.clamps, layer, *size) for layer in layers}
        self.forward = partial(myopic_pass, self.model, train_reading=self.train_reading, closed=closed)
        return super().losses(examples)


def training_step(condition: str, model: Transformer, task: NextSymbolTask, recipe: Recipe) -> TrainingStep:
    """Return the training step of a condition."""
    if condition == "ordinary":
        return TrainingStep(model, task, recipe)
    forced = clamps("joined", task) if condition == "myopic, joined" else ()
    return MyopicStep(model, task, recipe, condition != "keys and values detached", forced)


def train_once(
    name: str, chosen: Preset, condition: str, seed: int, progress: Callable[[float], None] = lambda share: None
) -> Outcome:
    """Train a preset once under a condition, and measure what arose.

    Args:
        name: the name of the preset.
        chosen: the preset; its task is a ``NextSymbolTask``.
        condition: the condition, one of ``CONDITIONS``.
        seed: the seed of weights and data.
        progress: is called with the finished share of the steps, 0 to 1.
    """
    from retrieval_interp.models.build import VectorTransformer

    task = NextSymbolTask.of(chosen.task)
    model = VectorTransformer(chosen.config, seed)
    step_of = training_step(condition, model, task, chosen.recipe)
    forced = step_of.clamps if isinstance(step_of, MyopicStep) else ()
    start = {} if forced else held(model, task, seed)
    curves: dict[str, dict[int, float]] = {component: {} for component in task.trained_components}
    for step, losses in train_in_intervals(step_of, seed):
        for curve, loss in zip(curves.values(), losses, strict=True):
            curve[step] = loss
        progress(step / chosen.recipe.steps)
    learned = {component: first_below(curve, EMERGED) for component, curve in curves.items()}
    end = {} if forced else held(model, task, seed)
    return Outcome(
        condition, seed, name, chosen.recipe.steps, learned, *measured(model, task, forced, seed), end, start
    )


def measured(
    model: Transformer, task: NextSymbolTask, forced: Sequence[Clamp], seed: int
) -> tuple[dict[str, float], dict[str, float], dict[str, str]]:
    """Return the losses, the attention and its heads (``Outcome``), on fresh examples.

    Args:
        model: the trained model.
        task: the task.
        forced: the clamps that the model was trained with.
        seed: the seed of the examples.
    """
    from circuits.ablation.clamping import clamped
    from circuits.attention import role_attention
    from circuits.circuit import Head
    from circuits.model.layers import layers

    examples = task.examples(EXAMPLES, seed)
    few = examples.take(slice(ATTENTION_EXAMPLES))
    model.eval()
    layers(model, few)  # checks the model on a batch of its own, which clamps would not fit
    with torch.no_grad():
        with clamped(model, forced, examples.roles):
            losses = task.training_losses(model(examples.inputs), examples).mean(dim=0)
        with clamped(model, forced, few.roles):
            between = role_attention(model, few)  # [layer, head, role, role]
    attention, heads = {}, {}
    for path in paths(task):
        source, target = path.split(" -> ")
        own = between[:, :, task.roles.index(source), task.roles.index(target)]
        layer, head = divmod(int(own.argmax()), own.shape[1])
        attention[path], heads[path] = own.max().item(), str(Head(layer, head))
    return dict(zip(task.trained_components, losses.tolist(), strict=True)), attention, heads


def paths(task: NextSymbolTask) -> tuple[str, ...]:
    """Return the paths of which attention is measured: those that join pairs, and those from the query to pairs."""
    steps = range(1, task.n_steps + 1)
    return (*(f"pair{k}.second -> pair{k}.first" for k in steps), *(f"query -> pair{k}.second" for k in steps))


def held(model: Transformer, task: NextSymbolTask, seed: int) -> dict[str, float]:
    """Return what pairs hold (``Outcome``), on fresh examples with this seed."""
    from retrieval_interp.probes.role_probes import probe_roles

    probes = probe_roles(model, task, n_examples=EXAMPLES, seed=seed, progress=lambda share: None)
    lowest = probes.errors.amin(dim=0)  # [role, piece]
    steps = range(1, task.n_steps + 1)
    return {
        f"x{j} at pair{k}.second": lowest[task.roles.index(f"pair{k}.second"), probes.pieces.index(f"x{j}")].item()
        for k, j in product(steps, range(task.n_steps + 1))
        if j != k
    }


def experiment(
    name: str, chosen: Preset, n_seeds: int, folder: Path, progress: Callable[[float], None] = lambda share: None
) -> list[Outcome]:
    """Train under every condition with every seed; runs that are in the folder are not repeated.

    Raises:
        BadInput: the preset cannot be trained so, the folder holds runs of another preset or length, or its file is
            damaged.
    """
    check_length(chosen.recipe)
    task = NextSymbolTask.of(chosen.task)
    chosen = replace(chosen, task=task)
    file = folder / RUNS

    def done() -> dict[tuple[str, int], Outcome]:
        kept = read_runs(file, Outcome)
        for one in kept:
            if (one.preset, one.steps) != (name, chosen.recipe.steps):
                raise BadInput(f"{file}: holds runs of {one.preset} with {one.steps} steps; choose another folder")
            told = {(*one.learned,), (*one.losses,)}, {(*one.attention,), (*one.heads,)}
            if told != ({task.trained_components}, {paths(task)}) or {*one.held} != {*one.held_at_start}:
                raise BadInput(f"{file}: {one.condition}, seed {one.seed}: losses or paths are missing, or too many")
        return {(one.condition, one.seed): one for one in kept}

    wanted = [(condition, seed) for seed, condition in product(range(n_seeds), CONDITIONS)]
    return all_runs(wanted, done, file, lambda key, share: train_once(name, chosen, *key, share), progress)


def summary(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return a table with one row for each condition and training loss.

    Columns: ``runs``; ``learned``, the number of runs that learned it; ``share_low`` and ``share_high``, Wilson's 95%
    interval of their share; ``loss``, ``low`` and ``high``, the mean, lowest and highest loss at the end.
    """
    rows: list[dict[str, Any]] = []
    for condition in CONDITIONS:
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        for component in own[0].losses:
            learned = sum(outcome.learned[component] is not None for outcome in own)
            share, losses = Interval.of_share(learned, len(own)), [outcome.losses[component] for outcome in own]
            row: dict[str, Any] = {"condition": condition, "loss of": component, "runs": len(own), "learned": learned}
            row |= {"share_low": share.low, "share_high": share.high}
            rows.append({**row, "loss": sum(losses) / len(own), "low": min(losses), "high": max(losses)})
    return pd.DataFrame(rows)


KINDS = {"attention": "attention", "held": "probe error", "held_at_start": "probe error before training"}


def arose(outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """Return the mean, lowest and highest attention of every path, and probe error of every symbol, by condition."""
    rows = []
    for condition in CONDITIONS:
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        for kind, what in KINDS.items():
            for name in getattr(own[0], kind):
                each = [getattr(outcome, kind)[name] for outcome in own]
                row = {"condition": condition, "what": what, "where": name}
                rows.append({**row, "mean": sum(each) / len(each), "low": min(each), "high": max(each)})
    return pd.DataFrame(rows)


def share_learned(outcomes: Sequence[Outcome], condition: str) -> float:
    """Return the share of a condition's runs whose query learned x1."""
    own = [outcome.learned["x1"] is not None for outcome in outcomes if outcome.condition == condition]
    return sum(own) / len(own)


def verdict(outcomes: Sequence[Outcome]) -> str:
    """Return ``pre-caching``, ``breadcrumbs`` or ``undecided``, by the rule in docs/protocol.md."""
    ordinary, myopic = (share_learned(outcomes, condition) for condition in ("ordinary", "myopic"))
    fewest = min(sum(one.condition == condition for one in outcomes) for condition in CONDITIONS)
    if fewest < SEEDS or ordinary < MOST or FEW < myopic < MOST:
        return "undecided"
    return "breadcrumbs" if myopic >= MOST else "pre-caching"


def sentences(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the verdict, and one sentence for every condition."""
    table = summary(outcomes).set_index(["condition", "loss of"])
    found = [f"By the query's x1: {verdict(outcomes)}."]
    for condition, what in CONDITIONS.items():
        own = [outcome for outcome in outcomes if outcome.condition == condition]
        counts = ", ".join(f"{name} in {learned}" for name, learned in table.loc[condition]["learned"].items())
        along = (f"{path} in {sum(run.attention[path] > EMERGED for run in own)}" for path in own[0].attention)
        found.append(f"{condition} ({what}): of {len(own)} runs, learned: {counts}; emerged: {', '.join(along)}.")
    return found

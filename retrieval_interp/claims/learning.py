"""Section 7: which symbols are learned, and in which order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from circuits.errors import BadInput
from retrieval_interp.claims.claim import Claim, listed, share, verdict_of
from retrieval_interp.claims.tables import FIGURE4, PAPER, SMALL, Figure4, Models, first_steps_below
from retrieval_interp.figure4.figure4 import (
    AT_ONCE,
    FAILED,
    IN_ORDER,
    OTHERWISE,
    asked_alone,
    hop,
    order,
    with_curriculum,
)
from retrieval_interp.models.model_dir import LOG, read_config
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.plan import Run, load_plan
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.sweep.store import LEARNED, Result
from retrieval_interp.training.training import LOG_EVERY

FALL = "partial losses fall below 0.5 in the order of the chain"
RUNS = 64  # of each kind in the paper


def section_7(data: Path) -> list[Claim]:
    """Return the claims of section 7, measured on figure 4 and on the training of A to D."""
    swept = [claim for table, sweep in FIGURE4.items() for claim in _figure4(data / table, sweep)]
    return [*swept, *(_trained(data, models) for models in (PAPER, SMALL))]


def _trained(data: Path, models: Models) -> Claim:
    """Return the claim on the order of learning, measured on all transformers of a recipe."""
    folders = models.every(data)
    seeds = {name: [read_config(one)["made"]["seed"] for one in folders if f"_{name}" in one.name] for name in "abcd"}
    seeds = {"A to C": sorted(seeds["a"] + seeds["b"] + seeds["c"]), "D": sorted(seeds["d"])}
    said = "; ".join(f"{name}: seed{'s' if len(own) > 1 else ''} {listed(own)}" for name, own in seeds.items())
    fell = [order(first_steps_below(folder / LOG)) for folder in folders]
    return _in_order(
        fell, f"recipe {models.recipe}, {said}", models.command("models export RUN", "ABCD"), models.smaller
    )


def _in_order(orders: Sequence[str | None], models: str, command: str, smaller: bool) -> Claim:
    """Return the claim on the order of learning, from the order in each run; None if fewer than two symbols fell."""
    counted = Counter(orders)
    showing = counted.total() - counted[None]
    measured = f"{share(counted[IN_ORDER], showing)} runs in which two or more symbols fell"
    measured += f"; in {counted[AT_ONCE]} runs two fell within the same {LOG_EVERY} steps" if counted[AT_ONCE] else ""
    holds = None if not showing else not counted[OTHERWISE]
    verdict = verdict_of(holds, smaller or showing < RUNS)
    return Claim("7.2", FALL, "in 100% of 64 runs", models, measured, showing, command, verdict)


def _figure4(table: Path, sweep: Figure4) -> list[Claim]:
    """Return the claims of section 7.2, measured on the runs of one sweep."""
    runs = read_runs(table)
    _check_complete(table, sweep, runs)
    alone, curriculum = asked_alone(runs), with_curriculum(runs)
    failed = sum(run.loss > FAILED for run in alone)
    means, fewest = _by_depth(curriculum)
    return [
        Claim(
            "7.2",
            "without the implicit curriculum, the loss stays high at every depth",
            f"above {FAILED} in 100% of 64 runs",
            settings(sweep, alone),
            f"{share(failed, len(alone))} runs (lowest loss {min(run.loss for run in alone):.3f})",
            len(alone),
            sweep.command,
            verdict_of(failed == len(alone), sweep.smaller or len(alone) < RUNS),
        ),
        Claim(
            "7.2",
            "later symbols of a chain need more layers",
            "figure 4, right",
            settings(sweep, curriculum),
            f"mean over depths of the final loss of {', '.join(means)}: "
            f"{_texts(f'{mean:.3f}' for mean in means.values())}; fewest layers with a mean over seeds below "
            f"{LEARNED}: {_texts(fewest.values())}",
            len(curriculum),
            sweep.command,
            verdict_of(
                _later_need_more([*means.values()], [*fewest.values()]), sweep.smaller or len(curriculum) < RUNS
            ),
        ),
        _in_order([order(run.fell) for run in curriculum], settings(sweep, curriculum), sweep.command, sweep.smaller),
    ]


def _check_complete(table: Path, sweep: Figure4, runs: Sequence[Result]) -> None:
    """Check that a table has the runs of its plan, and no others.

    Raises:
        BadInput: a run is missing, or belongs to another plan.
    """
    plan = load_plan(*sweep.plan).runs
    there = [Run(run.preset, run.seed) for run in runs]
    if missing := [run for run in plan if run not in there]:
        raise BadInput(f"{table}: lacks the run {missing[0]}; make it with: {sweep.command}")
    if other := [run for run in there if run not in plan]:
        raise BadInput(f"{table}: has the run {other[0]}, which is not in the plan {sweep.plan[0]}")


def _by_depth(runs: Sequence[Result]) -> tuple[dict[str, float], dict[str, int | None]]:
    """Return what figure 4, right, says of each symbol, from its final loss at each depth, averaged over seeds.

    Returns:
        the mean over depths, and the fewest layers with a mean over seeds below 0.5, or None; by symbol.
    """
    losses: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))  # by symbol and depth
    for run in runs:
        for symbol, loss in run.losses.items():
            losses[symbol][preset(run.preset).architecture.n_layers].append(loss)
    depths = {symbol: {layers: fmean(own) for layers, own in by.items()} for symbol, by in losses.items()}
    return (
        {symbol: fmean(by.values()) for symbol, by in depths.items()},
        {symbol: min((n for n, mean in by.items() if mean < LEARNED), default=None) for symbol, by in depths.items()},
    )


def _texts(numbers: Iterable[object]) -> str:
    return ", ".join("none" if number is None else str(number) for number in numbers)


def settings(sweep: Figure4, runs: Sequence[Result]) -> str:
    """Return the recipe, the sizes of the models and their seeds."""
    presets = [preset(name) for name in {run.preset for run in runs}]
    layers, heads = (sorted({getattr(one.architecture, what) for one in presets}) for what in ("n_layers", "n_heads"))
    steps = sorted({one.recipe.steps for one in presets})
    hops, seeds = sorted({hop([*run.losses][-1]) for run in runs}), sorted({run.seed for run in runs})
    of = f"{_span(layers)} layer{'' if layers == [1] else 's'} of {_span(heads)} heads"
    return (
        f"D = {_span(hops)}; {of}, recipe {sweep.recipe}, {_span(steps)} steps, "
        f"seed{'s' if len(seeds) > 1 else ''} {_span(seeds)}"
    )


def _span(numbers: Sequence[int]) -> str:
    """Return ascending numbers, such as ``1 to 8``, or ``2, 4, 8`` if some between them are missing."""
    first, last = numbers[0], numbers[-1]
    return f"{first} to {last}" if len(numbers) > 2 and len(numbers) == last - first + 1 else listed(numbers)


def _later_need_more(means: Sequence[float], layers: Sequence[int | None]) -> bool:
    """Whether the mean loss rises from symbol to symbol, none needs fewer layers, and the last more than the first.

    A symbol that is learned at no depth has no number of layers, and the rule is not met.
    """
    needed = [number for number in layers if number is not None]
    return (
        len(needed) == len(layers)
        and all(a < b for a, b in pairwise(means))
        and all(a <= b for a, b in pairwise(needed))
        and needed[0] < needed[-1]
    )

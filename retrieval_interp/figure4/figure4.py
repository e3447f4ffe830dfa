"""The runs of a sweep compared: losses by depth, and sentences beside those of the paper (section 7.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from circuits.utils.lazy import pandas as pd
from retrieval_interp.models.presets import Preset, preset
from retrieval_interp.sweep.store import LEARNED, Result
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.theory.depth import layers_causal
from retrieval_interp.training.training import LOG_EVERY

FAILED = 0.7  # a final loss above it counts as failed (paper, section 7.2)
ALL = "all"  # the symbol name of the mean over symbols
MOST, ANY = 0.5, 0.0  # shares of the seeds that must be exceeded
IN_ORDER, AT_ONCE, OTHERWISE = "in order", "at once", "otherwise"


def family(chosen: Preset) -> str:
    """Return the task of a preset, such as ``D = 5, asked for x1 ... x5``; presets of one family differ in depth."""
    hops = f"D = {chosen.task.n_steps}, " if isinstance(chosen.task, RetrievalTask) else ""  # true for every plan
    return f"{hops}asked for {chosen.task.asked}{', D growing' if chosen.recipe.growing else ''}"


def has_curriculum(chosen: Preset) -> bool:
    """Whether a preset has the implicit curriculum: every symbol of the chain is asked for."""
    task = chosen.task
    return isinstance(task, RetrievalTask) and task.n_steps > 1 and len(task.loss_components) == task.n_steps


def hop(symbol: str) -> int:
    """Return the number of hops to a symbol, such as 2 for x2."""
    return int(symbol[1:])


def table(results: Sequence[Result]) -> pd.DataFrame:
    """Return a table with one row for every preset and symbol, and one row ``all`` for the mean over the symbols.

    Columns:
        ``preset``, ``family``, ``layers``, ``symbol``;
        ``takes``: the least number of layers for the symbol by information flow;
        ``runs``, ``learned``: the number of runs, and of those with a loss below 0.5;
        ``loss``, ``low``, ``high``: the mean, lowest and highest loss over seeds;
        ``fell``: the median first step with a training loss below 0.5, over the runs that reached it.
    """
    rows: list[dict[str, Any]] = []
    for name in dict.fromkeys(result.preset for result in results):
        own, chosen = [result for result in results if result.preset == name], preset(name)
        for symbol in (ALL, *chosen.task.loss_components):
            losses = pd.Series([result.loss if symbol == ALL else result.losses[symbol] for result in own])
            steps = pd.Series([result.fell.get(symbol) for result in own], dtype=float)
            rows.append(
                {
                    **{"preset": name, "family": family(chosen), "layers": chosen.architecture.n_layers},
                    **{"symbol": symbol, "takes": layers_causal(hop(symbol)) if symbol != ALL else None},
                    **{"runs": len(own), "learned": int((losses < LEARNED).sum())},
                    **{"loss": losses.mean(), "low": losses.min(), "high": losses.max(), "fell": steps.median()},
                }
            )
    return pd.DataFrame(rows)


def figure4_sentences(results: Sequence[Result]) -> list[str]:
    """Return one sentence for each statement of section 7.2, with the numbers of these runs."""
    lines = []
    alone, curriculum = asked_alone(results), with_curriculum(results)
    if alone:
        failed = sum(r.loss > FAILED for r in alone)
        lines.append(
            f"Asked for the last symbol alone: the final validation loss is above {FAILED} in {failed} of {len(alone)} "
            f"runs (lowest loss {min(r.loss for r in alone):.3f}; the paper: in all)."
        )
    orders = Counter(order(r.fell) for r in curriculum)
    if with_order := orders.total() - orders[None]:
        lines.append(
            f"With the implicit curriculum: two or more partial losses fell below {LEARNED} in {with_order} runs. They "
            f"fell in the order x1, x2, ... in {orders[IN_ORDER]} runs (the paper: in all), two within the same "
            f"{LOG_EVERY} steps in {orders[AT_ONCE]}, and in another order in {orders[OTHERWISE]}."
        )
    for name in dict.fromkeys(family(preset(r.preset)) for r in curriculum):
        own = [r for r in curriculum if family(preset(r.preset)) == name]
        if len({r.preset for r in own}) == 1:
            continue  # all runs have the same depth
        most, some = fewest_layers(own, MOST), fewest_layers(own, ANY)
        listed = [
            f"{symbol} {most[symbol] or 'in none'}, {some[symbol] or 'in none'} ({layers_causal(hop(symbol))})"
            for symbol in most
        ]
        lines.append(
            f"{name}: fewest layers with which more than half of the seeds, and at least one seed, learn each symbol "
            f"(in parentheses: the least by information flow): {'; '.join(listed)}."
        )
    depths = {preset(r.preset).architecture.n_layers for r in results}
    if len(depths) == 1:
        for name in dict.fromkeys(r.preset for r in results):
            lines.append(_learned(name, [r for r in results if r.preset == name]))
    return lines


def _learned(name: str, results: Sequence[Result]) -> str:
    """Return a sentence with the number of a preset's runs that learned each symbol."""
    counted = [
        f"{symbol} in {sum(r.losses[symbol] < LEARNED for r in results)} of {len(results)}"
        for symbol in results[0].losses
    ]
    chosen = preset(name)
    layers = chosen.architecture.n_layers
    return f"{family(chosen)}, {layers} layers: the loss fell below {LEARNED} for {', '.join(counted)} runs."


def asked_alone(results: Sequence[Result]) -> list[Result]:
    """Return the runs that are asked for the last symbol alone, without D = 1 and without a growing D."""
    alone = [r for r in results if len(r.losses) == 1 and hop(*r.losses) > 1]
    return [r for r in alone if not preset(r.preset).recipe.growing]


def with_curriculum(results: Sequence[Result]) -> list[Result]:
    """Return the runs with the implicit curriculum."""
    return [r for r in results if has_curriculum(preset(r.preset))]


def fewest_layers(results: Sequence[Result], share: float) -> dict[str, int | None]:
    """Return for every symbol the fewest layers with which more than a share of the seeds learn it, or None."""
    found: dict[str, int | None] = {}
    for symbol in dict.fromkeys(symbol for result in results for symbol in result.losses):
        learned: dict[str, list[bool]] = {}
        for result in results:
            if symbol in result.losses:
                learned.setdefault(result.preset, []).append(result.losses[symbol] < LEARNED)
        enough = [name for name, own in learned.items() if sum(own) > share * len(own)]
        found[symbol] = min((preset(name).architecture.n_layers for name in enough), default=None)
    return found


def order(fell: Mapping[str, int | None]) -> str | None:
    """Return the order in which partial losses fell, compared with x1, x2, ...; None if fewer than two fell.

    Args:
        fell: for every symbol in the order of the chain, the step at which its loss fell below 0.5, or None.
    """
    steps = [float("inf") if step is None else step for step in fell.values()]
    if sum(step < float("inf") for step in steps) < 2:
        return None
    if any(far < near for near, far in pairwise(steps)):
        return OTHERWISE
    return AT_ONCE if any(near == far < float("inf") for near, far in pairwise(steps)) else IN_ORDER

"""What the runs of a sweep have in common: losses by depth, and what section 7.2 of the paper says of them."""

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

FAILED = 0.7  # a loss above it (paper, section 7.2)
ALL = "all"  # the mean of the symbols
MOST, ANY = 0.5, 0.0  # shares of the seeds, to be surpassed
IN_ORDER, AT_ONCE, OTHERWISE = "in order", "at once", "otherwise"


def family(chosen: Preset) -> str:
    """What models of several depths are trained on, in short: ``D = 5, asked for x1 ... x5``."""
    hops = f"D = {chosen.task.n_steps}, " if isinstance(chosen.task, RetrievalTask) else ""  # as all of a plan are
    return f"{hops}asked for {chosen.task.asked}{', D growing' if chosen.recipe.growing else ''}"


def has_curriculum(chosen: Preset) -> bool:
    """Whether every symbol of the chain is asked for: the implicit curriculum."""
    task = chosen.task
    return isinstance(task, RetrievalTask) and task.n_steps > 1 and len(task.loss_components) == task.n_steps


def hop(symbol: str) -> int:
    """How many hops away a symbol is: 2 for x2."""
    return int(symbol[1:])


def table(results: Sequence[Result]) -> pd.DataFrame:
    """One row for every preset and symbol, and one with the mean of its symbols, ``all``.

    Columns: ``preset``, ``family``, ``layers``, ``symbol``, the layers that it ``takes`` by information flow, ``runs``,
    how many ``learned`` it (below 0.5), the mean ``loss`` over seeds, the lowest, ``low``, and the highest, ``high``;
    and ``fell``, the median step by which it was below 0.5 first, of those runs in which it was.
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
    """The statements of section 7.2, each beside what these runs say."""
    said = []
    alone, curriculum = asked_alone(results), with_curriculum(results)
    if alone:
        failed = sum(r.loss > FAILED for r in alone)
        said.append(
            f"Asked for the last symbol alone: the final validation loss is above {FAILED} in {failed} of {len(alone)} "
            f"runs (lowest {min(r.loss for r in alone):.3f}; the paper: in all)."
        )
    orders = Counter(order(r.fell) for r in curriculum)
    if told := orders.total() - orders[None]:
        said.append(
            f"With the implicit curriculum: partial losses fell below {LEARNED} in the order x1, x2, and so on in "
            f"{orders[IN_ORDER]} of the {told} runs in which two or more did, within the same {LOG_EVERY} steps in "
            f"{orders[AT_ONCE]}, in another order in {orders[OTHERWISE]} (the paper: in order in all)."
        )
    for name in dict.fromkeys(family(preset(r.preset)) for r in curriculum):
        own = [r for r in curriculum if family(preset(r.preset)) == name]
        if len({r.preset for r in own}) == 1:
            continue  # of one depth
        most, some = fewest_layers(own, MOST), fewest_layers(own, ANY)
        listed = [
            f"{symbol} {most[symbol] or 'in none'}, {some[symbol] or 'in none'} ({layers_causal(hop(symbol))})"
            for symbol in most
        ]
        said.append(
            f"{name}: fewest layers with which most seeds, and any, learn a symbol (by information flow): "
            f"{'; '.join(listed)}."
        )
    depths = {preset(r.preset).architecture.n_layers for r in results}
    if len(depths) == 1:
        said += [_learned(name, [r for r in results if r.preset == name]) for name in presets_of(results)]
    return said


def _learned(name: str, results: Sequence[Result]) -> str:
    """In how many of the runs of a preset each symbol was learned."""
    counted = [
        f"{symbol} in {sum(r.losses[symbol] < LEARNED for r in results)} of {len(results)}"
        for symbol in results[0].losses
    ]
    chosen = preset(name)
    return f"{family(chosen)}, {chosen.architecture.n_layers} layers: below {LEARNED} came {', '.join(counted)} runs."


def presets_of(results: Sequence[Result]) -> list[str]:
    """The names of their presets, each once."""
    return [*dict.fromkeys(r.preset for r in results)]


def asked_alone(results: Sequence[Result]) -> list[Result]:
    """The runs that are asked for the last symbol alone, and at once, where it is not the only one."""
    alone = [r for r in results if len(r.losses) == 1 and hop(*r.losses) > 1]
    return [r for r in alone if not preset(r.preset).recipe.growing]


def with_curriculum(results: Sequence[Result]) -> list[Result]:
    """The runs that are asked for every symbol of the chain."""
    return [r for r in results if has_curriculum(preset(r.preset))]


def fewest_layers(results: Sequence[Result], share: float) -> dict[str, int | None]:
    """For every symbol the fewest layers with which more than a share of the seeds learn it; None if with none."""
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
    """In which order the symbols fell, the nearest to the query first; None where fewer than two did."""
    steps = [float("inf") if step is None else step for step in fell.values()]
    if sum(step < float("inf") for step in steps) < 2:
        return None
    if any(far < near for near, far in pairwise(steps)):
        return OTHERWISE
    return AT_ONCE if any(near == far < float("inf") for near, far in pairwise(steps)) else IN_ORDER

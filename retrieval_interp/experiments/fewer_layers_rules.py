"""What the models of one layer fewer show, by the rules in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from circuits.losses.interval import Interval
from retrieval_interp.experiments.depth_sweep import LEARNED
from retrieval_interp.experiments.fewer_layers import POINTS, Outcome
from retrieval_interp.tasks.retrieval import StepOrder
from retrieval_interp.theory.depth import least_loss_one_layer

SEEDS = 10  # the number of runs of every model on which the protocol decides
MOST = 0.8  # the share of runs for a statement on the mechanism
FIRST_TEST = 2  # the first seed that tests what was seen on the seeds before it


def rows(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return a row for each condition.

    Columns: ``model``, the number of hops, of layers and the condition, in words; ``symbol``, the one in question;
    ``bound``, the least loss by the number of heads, for one layer; ``runs``; ``learned``, the number of runs with a
    loss below 0.5; ``share_low`` and ``share_high``, Wilson's 95% interval of their share; ``loss``, ``low`` and
    ``high``, the mean, the lowest and the highest loss over seeds; ``below_bound``, the number of runs clearly below
    the bound. Of the runs that learned the symbol: ``by_position``, the number that fetch all pairs by position;
    ``by_way_of_x1``, whose x2 goes through x1 at the query; and ``both_in_last``, to whose query x1 and x2 both come in
    the last layer. The last two are None for one layer.
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
                "both_in_last": None if one else sum(run.both_in_last for run in learned),
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
    few = [run.below_bound for run in outcomes if run.n_layers == 1 and run.point.condition.n_heads < run.n_pairs]
    found.append(
        f"{sum(map(bool, few))} of {len(few)} models of one layer with fewer heads than pairs have a loss clearly below"
        " the bound by heads. With as many heads as pairs, the bound is 0."
    )
    learned = [run for run in outcomes if run.loss < LEARNED]
    blocks = [run.by_position for run in learned if run.step_order is StepOrder.LAST_FIRST]
    two = [run for run in learned if run.n_layers > 1]
    complete = len(every) == len(POINTS) and all(row["runs"] >= SEEDS for row in every)
    found.append(_stated(blocks, "fetch all pairs by position (pairs within blocks)", complete))
    found.append(_stated([run.through_x1 for run in two], "bring x2 by way of x1 at the query (two layers)", complete))
    both = [run.both_in_last for run in two if run.seed >= FIRST_TEST]
    what = f"bring both symbols to the query in the last layer (two layers, seeds from {FIRST_TEST})"
    found.append(_stated(both, what, complete))
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
    if not which and not complete:
        return f"Whether runs which learned the symbol in question {what} is undecided before all have {SEEDS} runs."
    if not which:
        return f"No run learned the symbol in question, so none can {what}."
    share = Interval.of_share(sum(which), len(which))
    decision = "holds" if sum(which) >= MOST * len(which) else "does not hold"
    says = decision if complete else f"is undecided before all models have {SEEDS} runs"
    numbers = f"{sum(which)} of {len(which)} do, {share.low:.0%} to {share.high:.0%}"
    return f"That runs which learned the symbol in question {what} {says} ({numbers}; at least {MOST:.0%} expected)."

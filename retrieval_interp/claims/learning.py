"""Section 7: which symbols are learned, and in which order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean

from circuits.errors import BadInput
from retrieval_interp.claims.claim import Claim, share, verdict_of
from retrieval_interp.claims.tables import FIGURE4, PAPER, SMALL, crossings
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
from retrieval_interp.models.model_dir import LOG
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.sweep.store import LEARNED, Result
from retrieval_interp.training.training import LOG_EVERY

FALL = "partial losses fall below 0.5 in the order of the chain"


def section_7(data: Path) -> list[Claim]:
    """Return the claims of section 7, measured on figure 4 and on the training of A to D.

    The paper has 64 runs of each kind. Fewer runs that all meet a rule make it hold at smaller scale.
    """
    rows = [claim for table, command in FIGURE4.items() for claim in _figure4(data / table, command)]
    for models in (PAPER, SMALL):
        folders = [data / folder for folder in models.folders.values()]
        folders += [*models.other_seeds(data, "A"), *models.other_seeds(data, "D")]
        fell = [crossings(folder / LOG) for folder in folders]
        rising = sum(map(_rising, fell))
        few = sum(sum(step is not None for step in steps) < 2 for steps in fell)
        rows.append(
            Claim(
                "7.2",
                FALL,
                "in 100% of 64 runs",
                f"A to D, recipe {models.recipe}",
                f"{share(rising, len(folders))} runs"
                + (f"; in {few} of them fewer than two symbols fell" if few else ""),
                len(folders),
                models.command("models export RUN", "ABCD"),
                verdict_of(rising == len(folders), smaller=True),
            )
        )
    return rows


def _figure4(table: Path, command: str) -> list[Claim]:
    """Return the claims of section 7.2, measured on the runs of one sweep."""
    runs = read_runs(table)
    alone, curriculum = asked_alone(runs), with_curriculum(runs)
    if not alone or not curriculum:
        raise BadInput(f"{table}: expected runs with the implicit curriculum and without")
    failed = sum(run.loss > FAILED for run in alone)
    means, fewest = _by_depth(curriculum)
    orders = Counter(order(run.fell) for run in curriculum)
    with_order = orders.total() - orders[None]
    return [
        Claim(
            "7.2",
            "without the implicit curriculum, the loss stays high at every depth",
            f"above {FAILED} in 100% of 64 runs",
            _settings(alone),
            f"{share(failed, len(alone))} runs (lowest loss {min(run.loss for run in alone):.3f})",
            len(alone),
            command,
            verdict_of(failed == len(alone), smaller=True),
        ),
        Claim(
            "7.2",
            "later symbols of a chain need more layers",
            "figure 4, right",
            _settings(curriculum),
            f"mean over depths of the final loss of {', '.join(means)}: "
            f"{_texts(f'{mean:.3f}' for mean in means.values())}; fewest layers with a mean over seeds below "
            f"{LEARNED}: {_texts(fewest.values())}",
            len(curriculum),
            command,
            verdict_of(_later_need_more([*means.values()], [*fewest.values()]), smaller=True),
        ),
        Claim(
            "7.2",
            FALL,
            "in 100% of 64 runs",
            _settings(curriculum),
            f"{share(orders[IN_ORDER], with_order)} runs in which two or more fell (in {orders[AT_ONCE]} runs two fell "
            f"within the same {LOG_EVERY} steps)",
            with_order,
            command,
            verdict_of(not orders[OTHERWISE], smaller=True),
        ),
    ]


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


def _settings(runs: Sequence[Result]) -> str:
    """Return the sizes of the models, for comparison with the paper's."""
    presets = [preset(name) for name in {run.preset for run in runs}]
    layers, heads = ({getattr(one.architecture, what) for one in presets} for what in ("n_layers", "n_heads"))
    hops = {hop([*run.losses][-1]) for run in runs}
    return f"D = {_span(hops)}, {_span(layers)} layers of {_span(heads)} heads"


def _span(numbers: set[int]) -> str:
    return str(*numbers) if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"


def _rising(steps: Sequence[float | None]) -> bool:
    """Whether the steps increase; symbols that are never learned come last."""
    known = [float("inf") if step is None else step for step in steps]
    return all(a < b or a == b == float("inf") for a, b in pairwise(known))


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

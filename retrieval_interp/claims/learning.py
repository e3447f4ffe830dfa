"""Section 7: which symbols are learned, and in which order."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from circuits.errors import BadInput
from retrieval_interp.claims.claim import Claim, share, verdict_of
from retrieval_interp.claims.tables import FIGURE4, PAPER, SMALL, crossings
from retrieval_interp.figure4.figure4 import (
    ANY,
    AT_ONCE,
    FAILED,
    IN_ORDER,
    MOST,
    OTHERWISE,
    asked_alone,
    fewest_layers,
    hop,
    order,
    with_curriculum,
)
from retrieval_interp.models.model_dir import LOG
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.runs_table import read_runs
from retrieval_interp.sweep.store import Result
from retrieval_interp.training.training import LOG_EVERY

COMMAND = "retrieval-interp study sweep figure4"


def section_7(data: Path) -> list[Claim]:
    """Return the claims of section 7, measured on figure 4 at a smaller scale and on the training of A to D.

    The paper has 64 runs of each kind. Fewer runs that all meet a rule make it hold at smaller scale.
    """
    runs = read_runs(data / FIGURE4)
    alone, curriculum = asked_alone(runs), with_curriculum(runs)
    if not alone or not curriculum:
        raise BadInput(f"{data / FIGURE4}: expected runs with the implicit curriculum and without")
    failed = sum(run.loss > FAILED for run in alone)
    most, some = fewest_layers(curriculum, MOST), fewest_layers(curriculum, ANY)
    orders = Counter(order(run.fell) for run in curriculum)
    with_order = orders.total() - orders[None]
    fall = "partial losses fall below 0.5 in the order of the chain"
    rows = [
        Claim(
            "7.2",
            "without the implicit curriculum, the loss stays high at every depth",
            f"above {FAILED} in 100% of 64 runs",
            _settings(alone),
            f"{share(failed, len(alone))} runs (lowest loss {min(run.loss for run in alone):.3f})",
            len(alone),
            COMMAND,
            verdict_of(failed == len(alone), smaller=True),
        ),
        Claim(
            "7.2",
            "later symbols of a chain need more layers",
            "figure 4, right",
            _settings(curriculum),
            f"fewest layers with which more than half of the seeds learn {', '.join(most)}: {_numbers(most)}; at least "
            f"one seed: {_numbers(some)}",
            len(curriculum),
            COMMAND,
            verdict_of(_later_need_more([*most.values()]), smaller=True),
        ),
        Claim(
            "7.2",
            fall,
            "in 100% of 64 runs",
            _settings(curriculum),
            f"{share(orders[IN_ORDER], with_order)} runs in which two or more fell (in {orders[AT_ONCE]} runs two fell "
            f"within the same {LOG_EVERY} steps)",
            with_order,
            COMMAND,
            verdict_of(not orders[OTHERWISE], smaller=True),
        ),
    ]
    for models in (PAPER, SMALL):
        folders = [data / folder for folder in models.folders.values()]
        folders += [*models.other_seeds(data, "A"), *models.other_seeds(data, "D")]
        fell = [crossings(folder / LOG) for folder in folders]
        rising = sum(map(_rising, fell))
        few = sum(sum(step is not None for step in steps) < 2 for steps in fell)
        rows.append(
            Claim(
                "7.2",
                fall,
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


def _numbers(layers: Mapping[str, int | None]) -> str:
    return ", ".join(str(number or "none") for number in layers.values())


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


def _later_need_more(layers: Sequence[int | None]) -> bool:
    """Whether no symbol needs fewer layers than the one before it, and the last symbol more than the first."""
    needed = [float("inf") if number is None else number for number in layers]
    return needed[0] < needed[-1] and all(a <= b for a, b in pairwise(needed))

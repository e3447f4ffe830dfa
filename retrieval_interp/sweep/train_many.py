"""A sweep by one call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.files import to_path
from circuits.utils.lazy import pandas as pd
from circuits.utils.progress import Progress, shown
from retrieval_interp.sweep.plan import Run


def train_many(
    presets: Sequence[str],
    seeds: int,
    folder: Path | str,
    *,
    device: str = "auto",
    weights: bool = False,
    progress: Progress | None = None,
) -> pd.DataFrame:
    """Train every preset with every seed, except runs that are already in the folder.

    Args:
        presets: the names of the presets.
        seeds: the number of seeds of each preset, from 0.
        folder: the folder of the store.
        device: ``auto``, ``cpu``, ``cuda`` or ``mps``.
        weights: whether to keep the weights.
        progress: is called with the finished share, 0 to 1. By default a notebook or a terminal shows a progress bar.

    Returns:
        the table of ``runs_table``, with one row for every run and symbol.

    Raises:
        BadInput: there is no such preset, the folder holds something else, or a run fails repeatedly.
    """
    from retrieval_interp.sweep.local import local
    from retrieval_interp.sweep.run import sweep
    from retrieval_interp.sweep.runs_table import runs_table
    from retrieval_interp.sweep.store import Store
    from retrieval_interp.sweep.training import train_run

    if not presets or seeds < 1:
        raise BadInput(f"{len(presets)} presets with {seeds} seeds; expected at least one of each")
    runs, store = [Run(name, seed) for name in presets for seed in range(seeds)], Store(to_path(folder))
    engine = partial(local, work=partial(train_run, device=device, weights=weights))
    with shown(progress, "training") as progress:
        failures = sweep(runs, store, engine, progress)
    if failures:
        raise BadInput(f"{failures[0].run} failed: {failures[0].reason}")
    return runs_table(store.results(runs))

"""The results of runs as a table, which can be read without the runs."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.files import read_text, to_path
from circuits.utils.lazy import pandas as pd
from retrieval_interp.models.presets import preset
from retrieval_interp.sweep.plan import Run
from retrieval_interp.sweep.store import Result


def runs_table(results: Sequence[Result]) -> pd.DataFrame:
    """Return a table with one row for every run and symbol: the loss, and the first step with a loss below 0.5."""
    return pd.DataFrame(
        {
            **{"preset": result.preset, "seed": result.seed, "symbol": symbol, "loss": loss},
            **{"fell": result.fell[symbol], "seconds": result.seconds, "device": result.device},
        }
        for result in results
        for symbol, loss in result.losses.items()
    )


def read_runs(path: Path | str) -> list[Result]:
    """Return the results in a table; lines that begin with # are ignored.

    Raises:
        BadInput: the table is missing or damaged.
    """
    lines = [line for line in read_text(to_path(path), "a table of runs").splitlines() if not line.startswith("#")]
    found: dict[Run, Result] = {}
    number = 0
    try:
        for number, row in enumerate(csv.DictReader(lines), start=1):
            run = Run(row["preset"], int(row["seed"]))
            result = Result(run.preset, run.seed, {}, {}, float(row["seconds"]), row["device"])
            own = found.setdefault(run, result)
            if row["symbol"] in own.losses:
                raise BadInput(f"{path}, row {number}: {run}, {row['symbol']}: is given twice")
            own.losses[row["symbol"]] = float(row["loss"])
            own.fell[row["symbol"]] = int(float(row["fell"])) if row["fell"] else None
    except BadInput:
        raise
    except (KeyError, ValueError, TypeError, OverflowError, csv.Error) as error:
        columns = "preset, seed, symbol, loss, fell, seconds and device"
        raise BadInput(f"{path}, row {number}: not a run; expected the columns {columns}, with numbers") from error
    if not found:
        raise BadInput(f"{path}: the table has no run")
    for result in found.values():
        try:
            symbols = preset(result.preset).task.loss_components
        except BadInput as error:
            raise BadInput(f"{path}: {error}") from error
        if tuple(result.losses) != symbols or not all(loss >= 0 for loss in result.losses.values()):
            raise BadInput(f"{path}: not a table of runs ({result.run}: a symbol is missing or has no loss)")
    return [*found.values()]

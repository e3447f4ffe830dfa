"""What the ledger reads: finished runs, models and circuits of the recipe."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from circuit import Circuit, read_circuit

from retrieval_interp import preset
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import WEIGHTS, read_config

DATA = data_folder()
THRESHOLD = 0.05  # a low loss (appendix E)
SHIPPED = {"paper_abc": (), "paper_d": ("transformer_d",)}  # runs that the toolkit has under names of their own


def symbols_of(run: pd.Series) -> list[str]:
    return [f"x{k}" for k in range(1, 6) if pd.notna(run.get(f"x{k}_loss"))]


def ended() -> pd.DataFrame:
    """Return the finished runs of the recipe, a row each, with their presets' depth and number of steps D."""
    table = pd.read_csv(Path(__file__).parents[1] / "paper/table.csv")
    table = table[table["ended"]]
    layers = [preset(name).architecture.n_layers for name in table["preset"]]
    return table.assign(layers=layers, hops=[preset(name).task.n_steps for name in table["preset"]])


def loss_of(folder: Path) -> dict[str, Any]:
    """Return the loss on fresh sequences, as ``models export`` measured it, in the stored precision."""
    exported = read_config(folder)["made"]["exported"]
    return exported[f"loss_{exported['precision']}"]


def of_shape(name: str) -> tuple[list[Path], list[Path]]:
    """Return the finished runs of ``paper_abc`` or ``paper_d``, and those of them that solve the task."""
    folders = [*map(DATA.joinpath, SHIPPED[name]), *sorted(DATA.glob(f"paper/{name}_seed_*"))]
    folders = [one for one in folders if (one / WEIGHTS).exists()]
    return folders, [one for one in folders if loss_of(one)["mean"] < THRESHOLD]


def circuits(folders: Iterable[Path]) -> list[Circuit]:
    return [own for own in map(read_circuit, folders) if own]

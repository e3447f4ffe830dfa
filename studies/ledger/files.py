"""What the ledger reads: finished runs, models and circuits, of the recipe and of those before it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from circuit import Circuit, read_circuit

from retrieval_interp import preset, read_runs
from retrieval_interp.models.library import data_folder
from retrieval_interp.models.model_dir import WEIGHTS, read_config

DATA, STUDIES = data_folder(), Path(__file__).parents[1]
THRESHOLD = 0.05  # a low loss (appendix E)
BEFORE = {  # the folders of the models of earlier recipes, and their runs of figure 4
    "literal": ("paper_recipe/transformer_{}_seed_[0-9]", "figure4_paper"),
    "small": ("transformer_[{}]", "figure4_laptop"),
}


def symbols_of(run: pd.Series) -> list[str]:
    return [f"x{k}" for k in range(1, 6) if pd.notna(run.get(f"x{k}_loss"))]


def ended() -> pd.DataFrame:
    """Return the finished runs of the recipe, a row each, with their presets' depth and number of steps D."""
    table = pd.read_csv(STUDIES / "paper/table.csv")
    return with_sizes(table[table["ended"]])


def with_sizes(table: pd.DataFrame) -> pd.DataFrame:
    layers = [preset(name).architecture.n_layers for name in table["preset"]]
    return table.assign(layers=layers, hops=[preset(name).task.n_steps for name in table["preset"]])


def swept(recipe: str) -> pd.DataFrame:
    """Return figure 4's runs of an earlier recipe in the same form."""
    runs = read_runs(DATA / "sweeps" / BEFORE[recipe][1] / "runs.csv")
    wide = runs.pivot_table(index=["preset", "seed"], columns="symbol", values=["loss", "fell"], dropna=False)
    wide.columns = [f"{symbol}_{'falls' if what == 'fell' else 'loss'}" for what, symbol in wide.columns]
    wide = wide.dropna(how="all").reset_index()
    losses = [column for column in wide if column.endswith("_loss")]
    return with_sizes(wide.assign(run=wide["preset"], loss=wide[losses].mean(axis=1)))


def before(of: Callable[[str], Sequence[bool]], what: str = "") -> str:
    """Return the counts of the earlier recipes, such as ``literal 3 of 3, small 18 of 18``."""
    counts = {recipe: of(recipe) for recipe in BEFORE}
    return ", ".join(f"{name} {sum(met)} of {len(met)}" for name, met in counts.items() if met) + what


def loss_of(folder: Path) -> dict[str, Any]:
    """Return the loss on fresh sequences, as ``models export`` measured it, in the stored precision."""
    exported = read_config(folder)["made"]["exported"]
    return exported[f"loss_{exported['precision']}"]


def models(recipe: str, names: str) -> list[Path]:
    """Return the folders of the models A to D of an earlier recipe."""
    if recipe == "literal":
        return [one for name in dict.fromkeys("a" if n in "abc" else n for n in names) for one in every(recipe, name)]
    return every(recipe, names)


def every(recipe: str, names: str) -> list[Path]:
    return sorted(one for one in DATA.glob(BEFORE[recipe][0].format(names)) if not one.name.endswith("_gpu.csv"))


def of_shape(name: str) -> tuple[list[Path], list[Path]]:
    """Return the finished runs of ``paper_abc`` or ``paper_d``, and those of them that solve the task."""
    folders = [one for one in sorted(DATA.glob(f"paper/{name}_seed_*")) if (one / WEIGHTS).exists()]
    return folders, [one for one in folders if loss_of(one)["mean"] < THRESHOLD]


def circuits(folders: Iterable[Path]) -> list[Circuit]:
    return [own for own in map(read_circuit, folders) if own]

"""The tables with the measurements: configs and logs of training, reports of ``validate``, and others."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT, CONFIG, LOG, REPORT, read_config
from retrieval_interp.reproduction.stored_report import check_is_of, circuit_found, read_report
from retrieval_interp.training.curves import EMERGED, first_below, parts_of, read_losses

DEPTH_SWEEP = "depth_sweep"
FIGURE4 = {  # the tables of figure 4, with the commands that make them
    Path("sweeps", "figure4_paper", "runs.csv"): "retrieval-interp study sweep figure4_paper_one_seed",
    Path("sweeps", "figure4_laptop", "runs.csv"): "retrieval-interp study sweep figure4",
}


SEED = re.compile(r"(.*_seed_)[0-9]+")  # a folder that is named by its seed


@dataclass(frozen=True)
class Models:
    """The transformers that stand for the paper's A, B, C and D.

    Attributes:
        recipe: the name of their recipe in the protocol.
        folders: their folders within ``data/``, by the paper's names.
        smaller: whether they were trained for fewer steps than the paper's.
    """

    recipe: str
    folders: Mapping[str, str]
    smaller: bool

    @property
    def abc(self) -> dict[str, str]:
        """The folders of A, B and C."""
        return {name: folder for name, folder in self.folders.items() if name != "D"}

    def said(self, data: Path, *names: str) -> str:
        """Return their recipe and seeds, such as ``recipe small, seeds 2, 1, 4``."""
        seeds = [str(read_config(data / self.folders[name])["made"].get("seed", "?")) for name in names]
        return f"recipe {self.recipe}, seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)}"

    def command(self, command: str, names: Iterable[str]) -> str:
        """Return the command that measured these transformers: that of the first, and the folders of the others."""
        first, *others = (f"data/{self.folders[name]}" for name in names)
        return f"retrieval-interp {command} {first}" + (f" (and {', '.join(others)})" if others else "")

    def other_seeds(self, data: Path, name: str) -> list[Path]:
        """Return the folders of a transformer's other seeds, which stand for no transformer of the paper."""
        found = SEED.fullmatch(self.folders[name])
        own = {data / folder for folder in self.folders.values()}
        beside = data.glob(f"{found[1]}*") if found else ()
        return sorted(folder for folder in beside if SEED.fullmatch(folder.name) and folder not in own)


SMALL = Models("small", {name: f"transformer_{name.lower()}" for name in "ABCD"}, smaller=True)
PAPER = Models(
    "paper",
    {name: f"paper_recipe/transformer_a_seed_{seed}" for seed, name in enumerate("ABC")}
    | {"D": "paper_recipe/transformer_d_seed_0"},
    smaller=False,
)


class TableMissing(Exception):
    """Tables that the claims need are missing; the message names each with the command that makes it."""


def check_all_there(data: Path) -> None:
    """Check that no table is missing.

    Raises:
        TableMissing: tables are missing.
    """
    needed = {
        **{data / table: command for table, command in FIGURE4.items()},
        data / DEPTH_SWEEP / RUNS: f"retrieval-interp study depth-sweep --out {data / DEPTH_SWEEP}",
    }
    for models in (PAPER, SMALL):
        for name, own in models.folders.items():
            folder = data / own
            needed[folder / LOG] = needed[folder / CONFIG] = f"retrieval-interp models export RUN {folder}"
            if name == "D":
                needed[folder / ATTENTION] = f"retrieval-interp study emergence RUN --out {folder}"
            if models is SMALL or (folder / REPORT).exists():
                discover = f"retrieval-interp discover {folder}"
                needed[folder / REPORT] = f"{discover} --report {folder}"
                if not (folder / REPORT).exists() or circuit_found(read_report(folder / REPORT)):
                    needed[folder / CIRCUIT] = f"{discover} --out {folder / CIRCUIT}"
    missing = [f"{path}: missing; make it with: {command}" for path, command in needed.items() if not path.exists()]
    if missing:
        raise TableMissing("\n".join(missing))


def reports_of(data: Path, models: Models) -> dict[str, dict[str, Any] | None]:
    """Return the reports of the transformers' circuits, by the paper's names; None if no circuit was found.

    Raises:
        BadInput: a report is damaged, or belongs to another circuit or another model.
    """
    return {name: _report_of(data / folder) for name, folder in models.folders.items()}


def _report_of(folder: Path) -> dict[str, Any] | None:
    if not (folder / REPORT).exists():
        return None
    report = read_report(folder / REPORT)
    if circuit_found(report):
        check_is_of(report, load_circuit(folder / CIRCUIT), folder)
    if not report["paths"] or not isinstance(report["merges"], list):
        raise BadInput(f"{folder / REPORT}: the report has no path or no list of merges; validate again")
    if Path(report["metadata"]["model"]).name != folder.name:
        raise BadInput(f"{folder / REPORT}: the report belongs to another model, {report['metadata']['model']}")
    return report if circuit_found(report) else None


def training_loss(folder: Path) -> dict[str, Any]:
    """Return the loss of a transformer that ``export`` measured, or else its last validation loss, as ``mean``.

    Raises:
        BadInput: there is neither.
    """
    exported = read_config(folder)["made"].get("exported")
    try:
        if exported:
            loss: dict[str, Any] = exported[f"loss_{exported['precision']}"]
            float(loss["mean"]), float(loss["standard_error"])
            return loss
        *_, last = read_losses(folder / LOG)["validation"].values()
        return {"mean": last, "standard_error": None}
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{folder}: no loss of `export`, and none of validation ({error})") from error


def loss_said(loss: Mapping[str, Any]) -> str:
    """Return a text such as ``0.0024 ± 0.0003``."""
    error = loss["standard_error"]
    return f"{loss['mean']:.4f}" + ("" if error is None else f" ± {error:.4f}")


def crossings(log: Path) -> list[float | None]:
    """Return for every symbol the first step with a loss below 0.5; None if there is none."""
    losses = read_losses(log)
    return [first_below(losses[part], EMERGED) for part in parts_of(losses)]

"""The tables with the measurements: configs and logs of training, reports of ``validate``, and others."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.experiments.runs import RUNS
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT, CONFIG, LOG, REPORT, read_config
from retrieval_interp.reproduction.stored_report import check_is_of, circuit_found, read_report
from retrieval_interp.training.curves import EMERGED, first_below, parts_of, read_losses

DEPTH_SWEEP = "depth_sweep"
FIGURE4 = Path("sweeps", "figure4_laptop", "runs.csv")
ABC = ("transformer_a", "transformer_b", "transformer_c")
D = "transformer_d"


class TableMissing(Exception):
    """Tables that the claims need are missing; the message names each with the command that makes it."""


def check_all_there(data: Path) -> None:
    """Check that no table is missing.

    Raises:
        TableMissing: tables are missing.
    """
    needed = {
        data / D / ATTENTION: f"retrieval-interp study emergence RUN --out {data / D}",
        data / FIGURE4: "retrieval-interp study sweep figure4",
        data / DEPTH_SWEEP / RUNS: f"retrieval-interp study depth-sweep --out {data / DEPTH_SWEEP}",
    }
    for folder in (data / name for name in (*ABC, D)):
        needed[folder / LOG] = needed[folder / CONFIG] = f"retrieval-interp models export RUN {folder}"
        needed[folder / REPORT] = f"retrieval-interp discover {folder.name} --report {folder}"
        if folder.name == D or not (folder / REPORT).exists() or circuit_found(read_report(folder / REPORT)):
            needed[folder / CIRCUIT] = f"retrieval-interp discover {folder.name} --out {folder / CIRCUIT}"
    missing = [f"{path}: missing; make it with: {command}" for path, command in needed.items() if not path.exists()]
    if missing:
        raise TableMissing("\n".join(missing))


def report_of(folder: Path) -> dict[str, Any]:
    """Return the report of a transformer's circuit.

    Raises:
        BadInput: the report is damaged, or belongs to another circuit or another model.
    """
    report = read_report(folder / REPORT)
    if circuit_found(report):
        check_is_of(report, load_circuit(folder / CIRCUIT), folder)
    if not report["paths"] or not isinstance(report["merges"], list):
        raise BadInput(f"{folder / REPORT}: the report has no path or no list of merges; validate again")
    if Path(report["metadata"]["model"]).name != folder.name:
        raise BadInput(f"{folder / REPORT}: the report belongs to another model, {report['metadata']['model']}")
    return report


def training_loss(folder: Path) -> dict[str, Any]:
    """Return the loss of a transformer that ``export`` measured.

    Raises:
        BadInput: the config has no such loss.
    """
    config = read_config(folder)
    try:
        exported = config["made"]["exported"]
        loss: dict[str, Any] = exported[f"loss_{exported['precision']}"]
        float(loss["mean"]), float(loss["standard_error"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{folder}: its config has no loss of `export` ({error})") from error
    return loss


def crossings(log: Path) -> list[float | None]:
    """Return for every symbol the first step with a loss below 0.5; None if there is none."""
    losses = read_losses(log)
    return [first_below(losses[part], EMERGED) for part in parts_of(losses)]


def validated(names: Iterable[str]) -> str:
    """Return the command that made the reports of these transformers."""
    return "retrieval-interp validate (or discover) " + ", ".join(names)

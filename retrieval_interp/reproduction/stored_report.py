"""Reading ``report.json``, which ``validate`` and ``discover --report`` write."""

import json
from pathlib import Path
from typing import Any

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.utils.files import read_text
from retrieval_interp.models.model_dir import CIRCUIT, REPORT


def read_report(path: Path) -> dict[str, Any]:
    """Return the report in a file; docs/reports.md explains every key.

    Raises:
        BadInput: the file is missing or damaged.
    """
    text = read_text(path, "a report of `validate --json`")
    try:
        report: dict[str, Any] = json.loads(text, object_pairs_hook=_each_once)
        if not isinstance(report, dict) or not {"paths", "verdicts", "loss", "passed"} <= set(report):
            raise ValueError("expected an object with paths, verdicts, loss and passed")
        if not all(isinstance(path["path"], str) for path in report["paths"]):
            raise ValueError("expected the name of every path")
        circuit_found(report)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path}: not a report of `validate --json` ({error})") from error
    return report


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object of these pairs.

    Raises:
        ValueError: a key is given twice; JSON readers differ in which value they use.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key is given twice")
    return made


def check_is_of(report: dict[str, Any], circuit: Circuit | None, folder: Path) -> None:
    """Check that a report has the paths of the circuit in its folder.

    Raises:
        BadInput: there is no circuit, or its paths are others.
    """
    if circuit is None or [path["path"] for path in report["paths"]] != [*map(str, circuit.removable)]:
        raise BadInput(f"{folder / REPORT}: belongs to another circuit than {CIRCUIT}; validate again")


def circuit_found(report: dict[str, Any]) -> bool:
    """Whether a report describes a circuit, and not the best attempt of a discovery that found none."""
    return bool(report.get("discovery", {}).get("found", True))

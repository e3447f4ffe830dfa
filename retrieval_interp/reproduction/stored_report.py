"""A report as a file: ``report.json`` of ``validate --json`` or of ``discover --report``."""

import json
from pathlib import Path
from typing import Any

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.utils.files import read_text
from retrieval_interp.models.model_dir import CIRCUIT, REPORT


def read_report(path: Path) -> dict[str, Any]:
    """The report of a file, as docs/reports.md describes it.

    Raises:
        BadInput: it is missing or damaged.
    """
    text = read_text(path, "a report of `validate --json`")
    try:
        report: dict[str, Any] = json.loads(text, object_pairs_hook=_each_once)
        if not isinstance(report, dict) or not {"paths", "verdicts", "loss", "passed"} <= set(report):
            raise ValueError("expected an object with paths, verdicts, loss and passed")
        if not all(isinstance(path["path"], str) for path in report["paths"]):
            raise ValueError("expected paths by their names")
        found(report)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BadInput(f"{path}: not a report of `validate --json` ({error})") from error
    return report


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key stands twice: people read one of the two, programs the other."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice")
    return made


def check_is_of(report: dict[str, Any], circuit: Circuit | None, folder: Path) -> None:
    """Check that a report is of the circuit that stands beside it.

    Raises:
        BadInput: it is of another, or there is none.
    """
    if circuit is None or [path["path"] for path in report["paths"]] != [*map(str, circuit.removable)]:
        raise BadInput(f"{folder / REPORT}: is the report of another circuit than {CIRCUIT}; validate again")


def found(report: dict[str, Any]) -> bool:
    """Whether a report is of a circuit, and not of the best that a discovery came to without finding one."""
    return bool(report.get("discovery", {}).get("found", True))

"""Reproduce a report: compare it with a new one, made with the same weights, circuit and examples."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, NamedTuple

from circuits.circuit import AttentionPath, Circuit
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from circuits.given import number_of_examples
from circuits.report.report import Report
from circuits.results import REPORT, Result
from retrieval_interp.models.model_dir import CIRCUIT

ABSOLUTE, RELATIVE = 1e-4, 1e-3  # tolerances of numbers; machines differ in the order of summation
NOT_COMPARED = ("metadata", "discovery", "sentence")  # discovery is not run again, and sentences only repeat numbers


class Difference(NamedTuple):
    """A value that was not reproduced.

    Attributes:
        key: the place of the value, such as ``paths[2].losses.uniform.mean``.
        reported: the value in the report.
        measured: the value measured now.
    """

    key: str
    reported: object
    measured: object

    def __str__(self) -> str:
        return f"{self.key}: reported {self.reported!r}, measured {self.measured!r}"


def read_report(path: Path) -> Report:
    """Read a report that can be reproduced, from its file or its folder.

    Raises:
        BadInput: it is damaged, or does not say of which model and weights it is.
    """
    path = path / REPORT if path.is_dir() else path
    report = Report.read(path)
    for key in ("model", "weights_sha256"):
        if not isinstance(report.metadata.get(key), str):
            raise BadInput(f"{path}: its {key} is missing or invalid; the report cannot be reproduced")
    for key in ("task", "metric"):
        if not isinstance(report.metadata.get(key), str | None):
            raise BadInput(f"{path}: its {key} is {report.metadata[key]!r}; expected a name")
    try:
        number_of_examples(report.n_examples)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error
    return report


def report_of(folder: Path) -> Report | None:
    """Return the report in a model directory, if there is one; it must be of the circuit beside it, if one was found.

    Raises:
        BadInput: it is damaged, or of another circuit.
    """
    if not (folder / REPORT).exists():
        return None
    report = Report.read(folder / REPORT)
    circuit: Circuit | None = load_circuit(folder / CIRCUIT) if (folder / CIRCUIT).exists() else None
    searched = report.discovery is not None and report.discovery.combined.decision == "above"  # and nothing was kept
    if not searched and (circuit is None or circuit.digest != report.circuit.digest):
        raise BadInput(f"{folder / REPORT}: belongs to another circuit than {CIRCUIT}; validate again")
    return report


def differences(reported: Any, measured: Any, key: str = "") -> Iterator[Difference]:
    """Yield every difference between two reports, or parts of them, except in metadata, discovery and sentences.

    Numbers with a fraction may differ by 1e-4 or a thousandth; other values must be equal.
    """
    if type(reported) is type(measured):
        ours, theirs = _entries(reported), _entries(measured)
        if ours is not None and theirs is not None and ours.keys() == theirs.keys():
            for name, value in ours.items():
                dot = "." if key and not name.startswith("[") else ""
                yield from differences(value, theirs[name], f"{key}{dot}{name}")
            return
        if isinstance(reported, float) and _close(reported, measured):
            return
        if ours is None and reported == measured:
            return
    yield Difference(key, reported, measured)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=ABSOLUTE) or (math.isnan(one) and math.isnan(other))


def _entries(value: Any) -> dict[str, Any] | None:
    """Return the parts of a record, a mapping or a sequence by name; None for anything else."""
    if isinstance(value, Result):
        named: dict[str, Any] = {name: getattr(value, name) for name in type(value).model_fields}
    elif is_dataclass(value) and not isinstance(value, Circuit | AttentionPath):
        named = {field.name: getattr(value, field.name) for field in fields(value)}
    elif isinstance(value, Mapping):
        named = {str(name): one for name, one in value.items()}
    elif isinstance(value, Sequence) and not isinstance(value, str):
        return {f"[{place}]": one for place, one in enumerate(value)}
    else:
        return None
    return {name: one for name, one in named.items() if name not in NOT_COMPARED}

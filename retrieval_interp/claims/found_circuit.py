"""What the claims need of a circuit that was found: its paths, and the losses in its report."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from circuits.circuit import AttentionPath, Head
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.models.model_dir import CIRCUIT, REPORT
from retrieval_interp.reproduction.stored_report import check_is_of, circuit_found, read_report


@dataclass(frozen=True)
class Measured:
    """A loss with its standard error."""

    mean: float
    standard_error: float

    @classmethod
    def of(cls, loss: Mapping[str, Any]) -> Measured:
        """Return a loss of a report or a config.

        Raises:
            ValueError: a number is missing or out of range.
        """
        try:
            found = cls(float(loss["mean"]), float(loss["standard_error"]))
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"no mean and standard_error of a loss ({error!r})") from error
        if not (0 <= found.mean < math.inf and 0 <= found.standard_error < math.inf):
            raise ValueError(f"a loss of {found}; expected numbers from 0")
        return found

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"


@dataclass(frozen=True)
class Needed:
    """A path of a circuit, and the losses without it.

    Attributes:
        path: the path.
        directly: whether the circuit needs it directly.
        losses: the loss with its row ``uniform``, and with its row ``identity``.
    """

    path: AttentionPath
    directly: bool
    losses: dict[str, float]


@dataclass(frozen=True)
class FoundCircuit:
    """A circuit and the losses in its report.

    Attributes:
        paths: the paths of its one-hot heads.
        fixed: the paths that fixed patterns have on average, on all slots.
        partial: the paths of one-hot heads and fixed patterns that are there on some slots only.
        combined: the loss with every head replaced.
        merged: the lowest loss with two of its heads made one; None if no two can be.
        literal: by Appendix E to the letter, the loss with every head replaced.
        without: by Appendix E to the letter, the loss without each path, its row uniform.
    """

    paths: tuple[Needed, ...]
    fixed: frozenset[AttentionPath]
    partial: frozenset[AttentionPath]
    combined: Measured
    merged: float | None
    literal: Measured
    without: dict[AttentionPath, float]

    @property
    def heads(self) -> int:
        """The number of heads with at least one directly needed path."""
        return len({needed.path.head for needed in self.paths if needed.directly})

    @property
    def first_useful_layer(self) -> int:
        """The lowest layer with a path; fixed patterns count if they have it on all slots."""
        return min(path.head.layer for path in {*self.fixed, *(needed.path for needed in self.paths)})

    @property
    def above(self) -> list[Needed]:
        """The paths above the first useful layer."""
        return [needed for needed in self.paths if needed.path.head.layer > self.first_useful_layer]

    def joins_pairs(self, partial_too: bool = False) -> bool:
        """Whether the first useful layer joins the members of every pair, on all slots, and does nothing else.

        Args:
            partial_too: whether fixed patterns that have a path on some slots only count, too.
        """
        paths = {*self.fixed, *(needed.path for needed in self.paths)} | (self.partial if partial_too else frozenset())
        lowest = min(path.head.layer for path in paths)
        first = {path for path in paths if path.head.layer == lowest}
        joined = {(path.source, path.target) for path in first}
        pairs = {role.split(".")[0] for path in paths for role in (path.source, path.target) if role.startswith("pair")}
        every = [{("*", "previous")}, {(f"{pair}.second", f"{pair}.first") for pair in pairs}]
        return not first & self.partial and joined in every


def found_circuit(folder: Path) -> FoundCircuit | None:
    """Return the circuit in a model directory; None if there is no report, or its discovery found no circuit.

    Raises:
        BadInput: the report is damaged, or belongs to another circuit or another model.
    """
    path = folder / REPORT
    if not path.exists():
        return None
    report = read_report(path)
    try:
        name = Path(report["metadata"]["model"]).name
        if name != folder.name:
            raise ValueError(f"it belongs to another model, {name}")
        if not circuit_found(report):
            return None
        check_is_of(report, load_circuit(folder / CIRCUIT), folder)
        return _read(report, folder)
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{path}: lacks a value that a claim needs ({error!r}); run discover --report again") from error


def _read(report: dict[str, Any], folder: Path) -> FoundCircuit:
    circuit = load_circuit(folder / CIRCUIT)
    named = {str(path): path for path in circuit.removable}
    if not isinstance(report["merges"], list):
        raise TypeError("merges is no list")
    fixed = [name.partition(" on ") for name in (report.get("flow_check") or {}).get("fixed_paths", [])]
    return FoundCircuit(
        tuple(
            Needed(
                named[one["path"]],
                one["needed"] == "directly",
                {row: _number(one["losses"][row]) for row in ("uniform", "identity")},
            )
            for one in report["paths"]
        ),
        frozenset(_path(name) for name, some, _ in fixed if not some),
        frozenset(_path(name) for name, some, _ in fixed if some) | {path for path in circuit.paths if path.condition},
        Measured.of(report["loss"]["details"]["combined"]),
        min((_number(merge["loss"]) for merge in report["merges"]), default=None),
        Measured.of(report["paper"]["loss"]),
        {_path(name.partition(" on ")[0]): Measured.of(loss).mean for name, loss in report["paper"]["paths"].items()},
    )


def _path(name: str) -> AttentionPath:
    """Return the path of a name such as ``L1H0 query -> pair1.second``."""
    head, source, _, target = name.split()
    return AttentionPath(Head.parse(head), source, target)


def _number(loss: object) -> float:
    if not isinstance(loss, int | float) or isinstance(loss, bool) or not 0 <= loss < math.inf:
        raise ValueError(f"a loss of {loss!r}; expected a number from 0")
    return float(loss)

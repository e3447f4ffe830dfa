"""What the ledger needs of a circuit that was found: its paths, and the losses in its report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from circuits.circuit import AttentionPath, Head
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp.models.model_dir import CIRCUIT, REPORT


@dataclass(frozen=True)
class Circuit:
    """A circuit and the losses in its report.

    Attributes:
        paths: a row for each path of its one-hot heads: ``path``, ``layer``, ``needed`` (directly, indirectly or not),
            and the loss with its row ``uniform`` and ``identity``.
        letter: a row for each path of Appendix E to the letter: ``layer``, and the loss with its row ``uniform``.
        useful: all paths on all slots, of one-hot heads, and of fixed patterns on average.
        partial: the paths of one-hot heads and fixed patterns that are there on some slots only.
        replaced: the loss with every head replaced, as the circuit was found, and (``True``) to the letter.
    """

    paths: pd.DataFrame
    letter: pd.DataFrame
    useful: frozenset[AttentionPath]
    partial: frozenset[AttentionPath]
    replaced: dict[bool, dict[str, float]]

    @property
    def heads(self) -> int:
        """The number of heads with at least one directly needed path."""
        return self.paths[self.paths["needed"] == "directly"]["path"].map(lambda path: path.head).nunique()

    @property
    def first_useful_layer(self) -> int:
        return min(path.head.layer for path in self.useful)

    @property
    def above(self) -> set[str]:
        """The names of the paths above the first useful layer."""
        return {*self.paths[self.paths["layer"] > self.first_useful_layer]["path"].map(str)}

    def joins_pairs(self) -> bool:
        """Whether the first useful layer joins the members of every pair, on all slots, and does nothing else."""
        first = {path for path in self.useful if path.head.layer == self.first_useful_layer}
        ends = [role for path in self.useful for role in (path.source, path.target) if role.startswith("pair")]
        every = {(f"{pair}.second", f"{pair}.first") for pair in {role.split(".")[0] for role in ends}}
        joined = {(path.source, path.target) for path in first}
        return not first & self.partial and joined in ({("*", "previous")}, every)


def read_circuit(folder: Path) -> Circuit | None:
    """Return the circuit in a model directory; None if there is no report, or its discovery found no circuit.

    Raises:
        BadInput: a file is missing or damaged, or the report belongs to another circuit or another model.
    """
    if not (folder / REPORT).exists():
        if (folder / CIRCUIT).exists():
            raise BadInput(
                f"{folder / REPORT}: missing; make it with: retrieval-interp discover {folder} --out {folder}"
            )
        return None
    report = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    if (name := Path(report["metadata"]["model"]).name) != folder.name:
        raise BadInput(f"{folder / REPORT}: belongs to another model, {name}")
    if not (report.get("discovery") or {}).get("found", True):
        return None
    circuit = load_circuit(folder / CIRCUIT)
    if circuit.digest != report["circuit"]["sha256"]:
        raise BadInput(f"{folder / REPORT}: belongs to another circuit; validate again")
    named = {str(path): path for path in circuit.removable}
    parts = [one for one in report["parts"] if one["path"]]
    paths = [{"path": named[own["path"]], "needed": own["needed"], **_means(own["losses"])} for own in parts]
    letter = {_path(name): loss for name, loss in _means(report["paper"]["without"]).items()}
    fixed = (report["carries"]["flow"] or {}).get("fixed_paths", [])
    on_some = {path for path in circuit.paths if path.condition}
    return Circuit(
        pd.DataFrame(paths).assign(layer=[own["path"].head.layer for own in paths]),
        pd.DataFrame({"layer": [path.head.layer for path in letter], "uniform": letter.values()}),
        frozenset([*named.values(), *(_path(name) for name in fixed if " on " not in name)]),
        frozenset({_path(name) for name in fixed if " on " in name} | on_some),
        {False: report["combined"]["loss"], True: report["paper"]["combined"]["loss"]},
    )


def _means(decided: dict[str, Any]) -> dict[str, float]:
    """Return the mean loss of each decision."""
    return {name: one["loss"]["mean"] for name, one in decided.items()}


def _path(name: str) -> AttentionPath:
    """Return the path of a name such as ``L1H0 query -> pair1.second on slot 2``."""
    head, source, _, target = name.partition(" on ")[0].split()
    return AttentionPath(Head.of(head), source, target)

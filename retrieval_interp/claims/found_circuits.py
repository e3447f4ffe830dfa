"""Section 8.2 and Appendix E: the circuits of A to D."""

from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any

from circuits.circuit_file import load_circuit
from retrieval_interp.claims.claim import Claim, listed, spread, verdict_of
from retrieval_interp.claims.tables import ABC, training_loss, validated
from retrieval_interp.models.model_dir import CIRCUIT
from retrieval_interp.reproduction.stored_report import circuit_found


def section_8(data: Path, reports: dict[str, dict[str, Any]]) -> list[Claim]:
    """Return the claims on A, B and C; ``reports`` are the reports of their circuits."""
    losses = [training_loss(data / name) for name in ABC]
    known = [report for report in reports.values() if circuit_found(report)]
    firsts = sum(
        joins_pairs(report, _on_some_slots(data / name)) for name, report in reports.items() if circuit_found(report)
    )
    paths = [{path["path"] for path in report["paths"]} for report in known]
    # The claim excludes the first head. Two circuits are very different if they share less than half of their paths.
    above = [{path["path"] for path in report["paths"] if not path["in_first_useful_layer"]} for report in known]
    shared = [len(one & other) for one, other in combinations(above, 2)]
    half = [min(len(one), len(other)) / 2 for one, other in combinations(above, 2)]
    heads = [len({head for _, head, *_ in _all_paths(report)}) for report in known]
    merged = [min((merge["loss"] for merge in report["merges"]), default=None) for report in known]
    fewer = sum(loss is not None and loss < own["threshold"] for loss, own in zip(merged, known, strict=True))
    unknown = "".join(f"; none found for {name}" for name, report in reports.items() if not circuit_found(report))
    command = validated(ABC)
    return [
        Claim(
            "8.2",
            "A, B and C: validation MSE",
            "below 0.01",
            ", ".join(f"{loss['mean']:.4f} ± {loss['standard_error']:.4f}" for loss in losses),
            len(losses),
            "retrieval-interp models export RUN data/transformer_a (and b, c)",
            verdict_of(all(loss["mean"] < 0.01 for loss in losses)),
        ),
        Claim(
            "8.2",
            "A, B and C: heads in the circuit",
            "4",
            listed(heads) + unknown,
            len(heads),
            command,
            verdict_of(not unknown and all(number == 4 for number in heads)),
        ),
        Claim(
            "8.2",
            "A, B and C: the first useful head joins the members of every pair",
            "3 of 3",
            f"{firsts} of {len(known)}{unknown}",
            len(known),
            command,
            verdict_of(not unknown and firsts == len(known)),
        ),
        Claim(
            "8.2",
            "A, B and C: apart from the first head, the circuits are very different",
            "figure 5",
            f"{listed(map(len, above))} paths above the first head; every two circuits share {listed(shared)} of them "
            f"(very different: less than half){unknown}",
            len(paths),
            command,
            verdict_of(not unknown and all(number < most for number, most in zip(shared, half, strict=True))),
        ),
        Claim(
            "8.2",
            "A, B and C: fewer heads would be enough",
            "3 instead of 4, by design; in A, layers 7 and 11 could be one",
            f"in {fewer} of {len(merged)} circuits, one trained head can take all paths of another (lowest loss "
            + ", ".join("-" if loss is None else f"{loss:.3f}" for loss in merged)
            + f"){unknown}",
            len(merged),
            command,
            verdict_of(not unknown and fewer > 0),
        ),
    ]


def appendix_e(reports: dict[str, dict[str, Any]]) -> list[Claim]:
    """Return the claims on the losses of A to D with heads replaced and with paths removed."""
    unknown = "".join(f"; none found for {name}" for name, report in reports.items() if not circuit_found(report))
    known = [report for report in reports.values() if circuit_found(report)]
    combined = [report["loss"]["combined"] for report in known]
    paths = [path for report in known for path in report["paths"]]
    first = [path["losses"]["uniform"] for path in paths if path["in_first_useful_layer"]]
    others = [path["losses"] for path in paths if not path["in_first_useful_layer"]]
    costs = [loss for losses in others for loss in losses.values()]
    above = sum(min(losses.values()) >= 0.17 for losses in others)
    command = validated(reports)
    return [
        Claim(
            "E",
            "A to D: MSE with every head replaced with its mechanism",
            "below 0.05",
            ", ".join(f"{loss:.4f}" for loss in combined) + unknown,
            len(combined),
            command,
            verdict_of(not unknown and all(loss < 0.05 for loss in combined)),
        ),
        Claim(
            "E",
            "A to D: MSE with one path above the first useful layer removed",
            "0.17 to 0.89",
            f"{spread(costs)} (row uniform or identity); {above} of {len(others)} paths reach 0.17 with both{unknown}",
            len(known),
            command,
            verdict_of(not unknown and bool(others) and above == len(others)),
        ),
        Claim(
            "E",
            "A to D: MSE with the row of a path in the first useful layer made uniform",
            "0.05 to 0.1",
            f"{spread(first)}{unknown}",
            len(known),
            command,
            verdict_of(not unknown and bool(first) and all(0.05 <= loss <= 0.1 for loss in first)),
        ),
    ]


def joins_pairs(report: dict[str, Any], on_some_slots: Collection[str] = ()) -> bool:
    """Whether the lowest layer with a path joins the members of every pair, on all slots, and does nothing else.

    Args:
        report: the report of a circuit.
        on_some_slots: the names of those paths that are there on some slots only.
    """
    paths = _all_paths(report)
    lowest = min(layer for layer, *_ in paths)
    first = [(head, source, target) for layer, head, source, target in paths if layer == lowest]
    limited = {*on_some_slots, *(name.split(" on ")[0] for name in _fixed(report) if " on " in name)}
    if any(f"{head} {source} -> {target}" in limited for head, source, target in first):
        return False
    joined = {(source, target) for _, source, target in first}
    pairs = {role.split(".")[0] for _, _, *ends in paths for role in ends if role.startswith("pair")}
    return joined == {("*", "previous")} or joined == {(f"{pair}.second", f"{pair}.first") for pair in pairs}


def _all_paths(report: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    """Return the layer, head, source and target of every path, including the paths of fixed patterns."""
    fixed = [name.split(" on ")[0] for name in _fixed(report)]
    named = [*(path["path"] for path in report["paths"]), *fixed]
    parts = [name.replace(" -> ", " ").split(maxsplit=2) for name in named]
    return [(int(head[1 : head.index("H")]), head, source, target) for head, source, target in parts]


def _fixed(report: dict[str, Any]) -> list[str]:
    """Return the paths of fixed patterns, such as ``L1H0 pair1.second -> pair1.first on slot 0, 2``."""
    return (report.get("flow_check") or {}).get("fixed_paths", [])


def _on_some_slots(folder: Path) -> set[str]:
    """Return the names of the paths of a circuit's one-hot heads that are there on some slots only."""
    circuit = load_circuit(folder / CIRCUIT)
    return {str(path) for path in circuit.paths if circuit.condition(path)}

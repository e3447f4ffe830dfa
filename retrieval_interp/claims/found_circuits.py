"""Section 8.2 and Appendix E: the circuits of A to D."""

from collections.abc import Collection, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

from circuits.circuit_file import load_circuit
from retrieval_interp.claims.claim import Claim, listed, spread, verdict_of
from retrieval_interp.claims.tables import Models, loss_said, training_loss
from retrieval_interp.models.model_dir import CIRCUIT

Reports = Mapping[str, dict[str, Any] | None]  # by the paper's names; None if no circuit was found
SOLVED = 0.01  # a validation MSE below it solves the task (paper, section 8.2)
FEWER_HEADS = "3 instead of 4, by design; in A, layers 7 and 11 could be one"


def section_8(data: Path, models: Models, reports: Reports) -> list[Claim]:
    """Return the claims on A, B and C."""
    abc = {name: reports[name] for name in models.abc}
    losses = {name: training_loss(data / folder) for name, folder in models.abc.items()}
    beside = [training_loss(folder)["mean"] for folder in models.other_seeds(data, "A")]
    solved = [loss < SOLVED for loss in (*(loss["mean"] for loss in losses.values()), *beside)]
    known = {name: report for name, report in abc.items() if report}
    joins = sum(joins_pairs(report, _on_some_slots(data / models.folders[name])) for name, report in known.items())
    # The claim excludes the first head. Two circuits are very different if they share less than half of their paths.
    above = [
        {path["path"] for path in report["paths"] if not path["in_first_useful_layer"]} for report in known.values()
    ]
    shared = [len(one & other) for one, other in combinations(above, 2)]
    half = [min(len(one), len(other)) / 2 for one, other in combinations(above, 2)]
    heads = [
        len({(path["layer"], path["index"]) for path in report["paths"] if path["needed"] == "directly"})
        for report in known.values()
    ]
    merged = [min((merge["loss"] for merge in report["merges"]), default=None) for report in known.values()]
    fewer = sum(loss is not None and loss < own["threshold"] for loss, own in zip(merged, known.values(), strict=True))
    unknown = _unknown(data, models, abc)

    def claim(what: str, paper: str, measured: str, holds: bool, command: str = "discover") -> Claim:
        of_circuits = command == "discover"
        runs = len(known) if of_circuits else len(solved)
        verdict = verdict_of(holds and not (of_circuits and unknown) if runs else None, models.smaller)
        text = f"{measured if runs else ''}{unknown if of_circuits else ''}".removeprefix("; ")
        said, by = models.said(data, *models.abc), models.command(command, "ABC")
        return Claim("8.2", f"A, B and C: {what}", paper, said, text, runs, by, verdict)

    return [
        claim(
            "validation MSE",
            f"below {SOLVED}",
            ", ".join(map(loss_said, losses.values()))
            + (f"; below {SOLVED} in {sum(solved)} of {len(solved)} seeds" if beside else ""),
            all(solved[: len(losses)]),
            "models export RUN",
        ),
        claim(
            "heads in the circuit",
            "4",
            f"{listed(heads)} with at least one directly needed path",
            all(number == 4 for number in heads),
        ),
        claim(
            "the first useful head joins the members of every pair",
            "3 of 3",
            f"{joins} of {len(known)}",
            joins == len(known),
        ),
        claim(
            "apart from the first head, the circuits are very different",
            "figure 5",
            f"{listed(map(len, above))} paths above the first head; every two circuits share {listed(shared) or '-'} "
            "of them (very different: less than half)",
            all(number < most for number, most in zip(shared, half, strict=True)),
        ),
        claim(
            "fewer heads would be enough",
            FEWER_HEADS,
            f"in {fewer} of {len(merged)} circuits, one trained head can take all paths of another (lowest loss "
            + ", ".join("-" if loss is None else f"{loss:.3f}" for loss in merged)
            + ")",
            fewer > 0,
        ),
    ]


def appendix_e(data: Path, models: Models, reports: Reports) -> list[Claim]:
    """Return the claims on the losses of A to D with heads replaced and with paths removed."""
    unknown = _unknown(data, models, reports)
    known = [report for report in reports.values() if report]
    combined = [report["loss"]["combined"] for report in known]
    paths = [path for report in known for path in report["paths"]]
    first = [path["losses"]["uniform"] for path in paths if path["in_first_useful_layer"]]
    others = [path["losses"] for path in paths if not path["in_first_useful_layer"]]
    costs = [loss for losses in others for loss in losses.values()]
    above = sum(min(losses.values()) >= 0.17 for losses in others)

    def claim(what: str, paper: str, measured: str, holds: bool) -> Claim:
        verdict = verdict_of(holds and not unknown if known else None, models.smaller)
        text = f"{measured if known else ''}{unknown}".removeprefix("; ")
        said, command = models.said(data, *models.folders), models.command("discover", "ABCD")
        return Claim("E", f"A to D: {what}", paper, said, text, len(known), command, verdict)

    return [
        claim(
            "MSE with every head replaced with its mechanism",
            "below 0.05",
            ", ".join(f"{loss:.4f}" for loss in combined),
            all(loss < 0.05 for loss in combined),
        ),
        claim(
            "MSE with one path above the first useful layer removed",
            "0.17 to 0.89",
            f"{spread(costs)} (row uniform or identity); {above} of {len(others)} paths reach 0.17 with both",
            bool(others) and above == len(others),
        ),
        claim(
            "MSE with the row of a path in the first useful layer made uniform",
            "0.05 to 0.1",
            spread(first),
            bool(first) and all(0.05 <= loss <= 0.1 for loss in first),
        ),
    ]


def joins_pairs(report: dict[str, Any], on_some_slots: Collection[str] = ()) -> bool:
    """Whether the lowest layer with a path joins the members of every pair, on all slots, and does nothing else.

    The paths of fixed patterns count if they hold on all slots.

    Args:
        report: the report of a circuit.
        on_some_slots: the names of those paths that are there on some slots only.
    """
    paths = _all_paths(report)
    lowest = min(layer for layer, *_ in paths)
    first = [(head, source, target) for layer, head, source, target in paths if layer == lowest]
    if any(f"{head} {source} -> {target}" in on_some_slots for head, source, target in first):
        return False
    joined = {(source, target) for _, source, target in first}
    pairs = {role.split(".")[0] for _, _, *ends in paths for role in ends if role.startswith("pair")}
    return joined == {("*", "previous")} or joined == {(f"{pair}.second", f"{pair}.first") for pair in pairs}


def _all_paths(report: dict[str, Any]) -> list[tuple[int, str, str, str]]:
    """Return the layer, head, source and target of every path, and of those of fixed patterns on all slots."""
    fixed = [name for name in (report.get("flow_check") or {}).get("fixed_paths", []) if " on " not in name]
    named = [*(path["path"] for path in report["paths"]), *fixed]
    parts = [name.replace(" -> ", " ").split(maxsplit=2) for name in named]
    return [(int(head[1 : head.index("H")]), head, source, target) for head, source, target in parts]


def _on_some_slots(folder: Path) -> set[str]:
    """Return the names of the paths of a circuit's one-hot heads that are there on some slots only."""
    circuit = load_circuit(folder / CIRCUIT)
    return {str(path) for path in circuit.paths if circuit.condition(path)}


def _unknown(data: Path, models: Models, reports: Reports) -> str:
    """Return a text such as ``; no circuit found for A (its own loss is 0.0987 ± 0.0012)``."""
    none = [name for name, report in reports.items() if report is None]
    own = [f"{name} (its own loss is {loss_said(training_loss(data / models.folders[name]))})" for name in none]
    return f"; no circuit found for {', '.join(own)}" if none else ""

"""The paper's quantitative claims, each beside what was measured here.

What was measured is read from the tables in ``data/``: configs and logs of training, ``report.json`` of ``validate``,
and the attention over training. A claim for which no experiment was made yet says so; a table that is needed and not
there is an error.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Literal

from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from retrieval_interp import staircase
from retrieval_interp.checkpoints import CIRCUIT, CONFIG, LOG, read_config
from retrieval_interp.depth import bound_paper, layers_causal
from retrieval_interp.emergence import ATTENTION, EMERGED, Emergence, emergence, first_crossing, read_losses
from retrieval_interp.experiments import RUNS
from retrieval_interp.observations import observations
from retrieval_interp.stored_report import REPORT, check_is_of, found, read_report

Verdict = Literal["holds", "differs", "not yet measured"]

STAIRCASE = "staircase"
ABC = ("transformer_a", "transformer_b", "transformer_c")
D = "transformer_d"


class TableMissing(Exception):
    """Tables that the claims need are not there; the message names each, and says how to make it."""


@dataclass(frozen=True)
class Claim:
    """One row of the ledger.

    Attributes:
        section: of the paper.
        claim: in our words.
        paper: the paper's number.
        measured: ours, with its error or range.
        runs: how many trained transformers it rests on.
        command: how it was measured.
        verdict: whether the claim holds for them.
    """

    section: str
    claim: str
    paper: str
    measured: str = "-"
    runs: int = 0
    command: str = "-"
    verdict: Verdict = "not yet measured"


def ledger(data: Path) -> list[Claim]:
    """All rows, in the order of the paper.

    Args:
        data: the folder of the trained transformers and their tables.

    Raises:
        TableMissing: tables are not there; all of them are named.
        BadInput: one of them is damaged.
    """
    try:
        _check_all_there(data)
        reports = {name: _report(data / name) for name in (*ABC, D)}
        return [
            *SECTION_4,
            *_section_5(data),
            *_section_7(data),
            *_section_8(data, {name: reports[name] for name in ABC}),
            *_section_9(data, reports[D]),
            *_appendix_e(reports),
        ]
    except BadInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"{data}: a {REPORT} or {CONFIG} lacks what a claim needs ({error!r})") from error


SECTION_4 = [
    Claim("4", "language models solve the equations formulation", "almost perfectly for D up to 5"),
    Claim("4", "language models solve the four other formulations", "great performance (lives-with, kingdoms: D = 5)"),
]


def _section_5(data: Path) -> list[Claim]:
    trained = staircase.read(data / STAIRCASE)
    fewer = {
        "x_D cannot be retrieved with fewer layers (Theorem 1)": ("log3(2D)", bound_paper),
        "a position attends only to those with whom it shares information (Assumption 1), so that D hops take "
        "1 + ceil(log2(D + 1)) layers": ("assumed", layers_causal),
    }
    rows = []
    for claim, (paper, bound) in fewer.items():
        too_shallow = [
            (run.point.world, [loss for symbol, loss in run.losses.items() if run.n_layers < bound(int(symbol[1:]))])
            for run in trained
        ]
        best = [(world, min(losses)) for world, losses in too_shallow if losses]
        if not best:
            rows.append(Claim("5", claim, paper))
            continue
        breaking = Counter(str(world) for world, loss in best if loss < staircase.KNOWN_IN_PART)
        measured = (
            f"{breaking.total()} of {len(best)} models with fewer layers know something of a symbol (loss below "
            f"{staircase.KNOWN_IN_PART}; lowest {min(loss for _, loss in best):.3f})"
        )
        where = "".join(f"; {number} with {world}" for world, number in breaking.items())
        rows.append(
            Claim("5", claim, paper, measured + where, len(best), "retrieval-interp staircase", _verdict(not breaking))
        )
    return rows


def _section_7(data: Path) -> list[Claim]:
    logs = {name: _crossings(data / name / LOG) for name in (*ABC, D)}
    ordered = sum(_rising(steps) for steps in logs.values())
    return [
        Claim("7.2", "without the implicit curriculum the loss stays high, whatever the depth", "above 0.7 in 100%"),
        Claim("7.2", "later positions of a chain need more layers", "figure 4, right"),
        Claim(
            "7.2",
            f"partial losses fall below {EMERGED:g} in the order of the chain (64 runs of figure 4; here A to D)",
            "100% of the runs",
            f"{ordered} of {len(logs)}",
            len(logs),
            "retrieval-interp train transformer_a (and b, c, d)",
            _verdict(ordered == len(logs)),
        ),
    ]


def _section_8(data: Path, reports: dict[str, dict[str, Any]]) -> list[Claim]:
    losses = [_training_loss(data / name) for name in ABC]
    known = [report for report in reports.values() if found(report)]
    firsts = [_first_head(report) for report in known]
    paths = [{path["path"] for path in report["paths"]} for report in known]
    # The first head is left out, as the claim has it. Very different: of every two less than half is the same.
    above = [{path["path"] for path in report["paths"] if not path["in_first_useful_layer"]} for report in known]
    shared = [len(one & other) for one, other in combinations(above, 2)]
    half = [min(len(one), len(other)) / 2 for one, other in combinations(above, 2)]
    heads = [len({path.split()[0] for path in own}) for own in paths]
    merged = [min((merge["loss"] for merge in report["merges"]), default=None) for report in known]
    fewer = sum(loss is not None and loss < own["threshold"] for loss, own in zip(merged, known, strict=True))
    unknown = "".join(f"; none found for {name}" for name, report in reports.items() if not found(report))
    validated = _validated(ABC)
    return [
        Claim(
            "8.2",
            "A, B and C: validation MSE",
            "below 0.01",
            ", ".join(f"{loss['mean']:.4f} ± {loss['standard_error']:.4f}" for loss in losses),
            len(losses),
            "retrieval-interp export RUN data/transformer_a (and b, c)",
            _verdict(all(loss["mean"] < 0.01 for loss in losses)),
        ),
        Claim(
            "8.2",
            "A, B and C: heads in the circuit",
            "4",
            _listed(heads) + unknown,
            len(heads),
            validated,
            _verdict(not unknown and all(number == 4 for number in heads)),
        ),
        Claim(
            "8.2",
            "A, B and C: the first useful head joins the members of every pair",
            "3 of 3",
            f"{sum(map(joins_pairs, firsts))} of {len(firsts)}{unknown}",
            len(firsts),
            validated,
            _verdict(not unknown and all(map(joins_pairs, firsts))),
        ),
        Claim(
            "8.2",
            "A, B and C: but for the first head the circuits are very different",
            "figure 5",
            f"of {_listed(map(len, above))} paths above the first head two of them share {_listed(shared)} "
            f"(very different: less than half){unknown}",
            len(paths),
            validated,
            _verdict(not unknown and all(number < most for number, most in zip(shared, half, strict=True))),
        ),
        Claim(
            "8.2",
            "A, B and C: fewer heads would do",
            "3 instead of 4, by design; for A layers 7 and 11 could be one",
            f"in {fewer} of {len(merged)} two trained heads can be made one as they are (least loss "
            + ", ".join("-" if loss is None else f"{loss:.3f}" for loss in merged)
            + f"){unknown}",
            len(merged),
            validated,
            _verdict(not unknown and fewer > 0),
        ),
    ]


def _section_9(data: Path, report: dict[str, Any]) -> list[Claim]:
    folder = data / D
    loss, combined = _training_loss(folder), report["loss"]["details"]["combined"]
    followed = emergence(folder, load_circuit(folder / CIRCUIT))
    said = {one.name: one for one in observations(followed)}
    steps = _steps(followed)
    paper = {
        "i": ("an induction head emerges first and abruptly", "after 450 epochs"),
        "ii": ("quickly after, a head above it reuses it to fetch x2", "layer 22 above 14 and 21"),
        "iii": ("further heads drive down the last partial losses, in order", "layers 23 and 24"),
        "iv": ("the last head emerges much later than the one before", "figure 7"),
    }
    return [
        Claim(
            "9.2",
            "D: validation MSE",
            "0.031",
            f"{loss['mean']:.4f} ± {loss['standard_error']:.4f} (at most 0.04), after {steps} steps instead of 6,400",
            1,
            f"retrieval-interp export RUN data/{D}",
            _verdict(loss["mean"] <= 0.04),
        ),
        Claim(
            "9.2",
            "D: MSE with its circuit in the place of all attention",
            "0.045",
            f"{combined['mean']:.4f} ± {combined['standard_error']:.4f} (below {report['threshold']:g})",
            1,
            _validated([D]),
            _verdict(found(report) and combined["mean"] < report["threshold"]),
        ),
        *(
            Claim(
                f"9.2 {name}",
                f"D: {what}",
                number,
                said[name].sentence,
                1,
                f"retrieval-interp emergence {D}",
                _verdict(said[name].holds),
            )
            for name, (what, number) in paper.items()
        ),
    ]


def _appendix_e(reports: dict[str, dict[str, Any]]) -> list[Claim]:
    unknown = "".join(f"; none found for {name}" for name, report in reports.items() if not found(report))
    known = [report for report in reports.values() if found(report)]
    combined = [report["loss"]["combined"] for report in known]
    paths = [path for report in known for path in report["paths"]]
    first = [path["losses"]["uniform"] for path in paths if path["in_first_useful_layer"]]
    others = [path["losses"] for path in paths if not path["in_first_useful_layer"]]
    costs = [loss for losses in others for loss in losses.values()]
    above = sum(min(losses.values()) >= 0.17 for losses in others)
    validated = _validated(reports)
    return [
        Claim(
            "E",
            "A to D: MSE with every head replaced by its mechanism",
            "below 0.05",
            ", ".join(f"{loss:.4f}" for loss in combined) + unknown,
            len(combined),
            validated,
            _verdict(not unknown and all(loss < 0.05 for loss in combined)),
        ),
        Claim(
            "E",
            "A to D: MSE without any one path above the first useful layer",
            "0.17 to 0.89",
            f"{_range(costs)} (row uniform or identity); {above} of {len(others)} paths reach 0.17 with both{unknown}",
            len(known),
            validated,
            _verdict(not unknown and bool(others) and above == len(others)),
        ),
        Claim(
            "E",
            "A to D: MSE with the row of a path in the first useful layer made uniform",
            "0.05 to 0.1",
            f"{_range(first)}{unknown}",
            len(known),
            validated,
            _verdict(not unknown and bool(first) and all(0.05 <= loss <= 0.1 for loss in first)),
        ),
    ]


def joins_pairs(paths: Sequence[tuple[str, str]]) -> bool:
    """Whether all paths of a head, as (from-role, to-role), lead to the position before, the members of a pair."""
    return all(
        (source, target) == ("*", "previous")
        or (source.endswith(".second") and target == source.replace("second", "first"))
        for source, target in paths
    )


def _first_head(report: dict[str, Any]) -> list[tuple[str, str]]:
    lowest = min(path["layer"] for path in report["paths"])
    return [(path["from"], path["to"]) for path in report["paths"] if path["layer"] == lowest]


def _rising(steps: Sequence[float | None]) -> bool:
    there = [step for step in steps if step is not None]
    return len(there) == len(steps) and all(a < b for a, b in pairwise(there))


def _crossings(log: Path) -> list[float | None]:
    losses = read_losses(log)
    parts = [name for name in losses.columns if name not in ("loss", "validation")]
    return [first_crossing(1 - losses[part], 1 - EMERGED) for part in parts]


def _training_loss(folder: Path) -> dict[str, Any]:
    config = read_config(folder)
    try:
        exported = config["made"]["exported"]
        loss: dict[str, Any] = exported[f"loss_{exported['precision']}"]
        float(loss["mean"]), float(loss["standard_error"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder}: its config holds no loss of `export` ({error})") from error
    return loss


def _steps(followed: Emergence) -> str:
    return f"{followed.losses.index[-1]:,}"


def _report(folder: Path) -> dict[str, Any]:
    report = read_report(folder)
    if found(report):
        check_is_of(report, load_circuit(folder / CIRCUIT), folder)
    if not report["paths"] or not isinstance(report["merges"], list):
        raise BadInput(f"{folder / REPORT}: has no path, or no list of merges; validate again")
    if Path(report["about"]["model"]).name != folder.name:
        raise BadInput(f"{folder / REPORT}: it is of {report['about']['model']}")
    return report


def _check_all_there(data: Path) -> None:
    needed = {
        data / D / ATTENTION: f"retrieval-interp emergence RUN --out {data / D}",
        data / STAIRCASE / RUNS: f"retrieval-interp staircase --out {data / STAIRCASE}",
    }
    for folder in (data / name for name in (*ABC, D)):
        needed[folder / LOG] = needed[folder / CONFIG] = f"retrieval-interp export RUN {folder}"
        needed[folder / REPORT] = f"retrieval-interp discover {folder.name} --report {folder}"
        if folder.name == D or not (folder / REPORT).exists() or found(read_report(folder)):
            needed[folder / CIRCUIT] = f"retrieval-interp discover {folder.name} --out {folder / CIRCUIT}"
    missing = [f"{path}: missing; make it with: {command}" for path, command in needed.items() if not path.exists()]
    if missing:
        raise TableMissing("\n".join(missing))


def _validated(names: Iterable[str]) -> str:
    return "retrieval-interp validate (or discover) " + ", ".join(names)


def _range(losses: Sequence[float]) -> str:
    return f"{min(losses):.3f} to {max(losses):.3f}" if losses else "-"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _verdict(holds: bool | None) -> Verdict:
    return "not yet measured" if holds is None else "holds" if holds else "differs"

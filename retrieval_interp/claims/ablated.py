"""Appendix E: the losses of A to D with heads replaced and with paths removed.

The rules are the paper's, so they are tested on the circuits by Appendix E to the letter: heads without a path are
uniform or identity. Rows of ours have the same rules for the circuits as they were found, with further mechanisms.
"""

from collections.abc import Callable
from pathlib import Path

from retrieval_interp.claims.claim import Claim, all_met, spread, verdict_of
from retrieval_interp.claims.found_circuit import FoundCircuit
from retrieval_interp.claims.found_circuits import THRESHOLD, Circuits, not_found
from retrieval_interp.claims.tables import Models

ONE_PATH = (0.17, 0.89)  # without one path above the first useful layer
FIRST_LAYER = (0.05, 0.1)  # with the row of a path in the first useful layer made uniform


def appendix_e(data: Path, models: Models, circuits: Circuits) -> list[Claim]:
    """Return the claims of Appendix E, to the letter and for the circuits as they were found."""
    return [*_rows(data, models, circuits, letter=True), *_rows(data, models, circuits, letter=False)]


def _rows(data: Path, models: Models, circuits: Circuits, letter: bool) -> list[Claim]:
    known = {name: circuit for name, circuit in circuits.items() if circuit}
    combined = {name: circuit.literal if letter else circuit.combined for name, circuit in known.items()}
    low = {name: circuit for name, circuit in known.items() if combined[name].mean < THRESHOLD}
    rejected = [name for name in known if name not in low]
    unknown = not_found(data, models, circuits)
    named = ", ".join(rejected)
    high = [f"not tested for {named}, whose loss is not below {THRESHOLD} with every path"] if rejected else []

    def claim(what: str, paper: str, measured: str, met: list[bool], tested: dict[str, FoundCircuit]) -> Claim:
        told = [*([measured] if measured else []), *(high if tested is low else []), *unknown]
        complete = len(tested) == len(circuits)
        return Claim(
            "E" if letter else "E (ours)",
            f"A to D: {what}",
            paper,
            models.said(data, *models.folders),
            "; ".join(told),
            len(tested),
            models.command("discover", known),
            verdict_of(all_met(met, complete), models.smaller),
        )

    def without(chosen: Callable[[int, int], bool], rows: tuple[str, ...]) -> list[float]:
        """The losses without each path whose layer, compared with the first useful one, is chosen."""
        found = []
        for circuit in low.values():
            losses = {path: [loss] for path, loss in circuit.without.items()}
            if not letter:
                losses = {needed.path: [needed.losses[row] for row in rows] for needed in circuit.paths}
            own = [loss for path, loss in losses.items() if chosen(path.head.layer, circuit.first_useful_layer)]
            found += [loss for each in own for loss in each]
        return found

    above = without(int.__gt__, ("uniform", "identity"))
    first = without(int.__eq__, ("uniform",))
    below = without(int.__lt__, ("uniform",))
    how = "row uniform" if letter else "row uniform or identity"
    return [
        claim(
            "MSE with every head replaced with its mechanism",
            f"below {THRESHOLD}",
            ", ".join(f"{loss.mean:.4f}" for loss in combined.values()),
            [loss.mean < THRESHOLD for loss in combined.values()],
            known,
        ),
        claim(
            "MSE with one path above the first useful layer removed",
            _range(ONE_PATH),
            f"{spread(above)} ({how}; {sum(map(_within(ONE_PATH), above))} of {len(above)} losses in the paper's range)"
            if above
            else "",
            [*map(_within(ONE_PATH), above)],
            low,
        ),
        claim(
            "MSE with the row of a path in the first useful layer made uniform",
            _range(FIRST_LAYER),
            "; ".join([*([spread(first)] if first else []), *([f"below that layer {spread(below)}"] if below else [])]),
            [*map(_within(FIRST_LAYER), first)],
            low,
        ),
    ]


def _range(limits: tuple[float, float]) -> str:
    return f"{limits[0]} to {limits[1]}"


def _within(limits: tuple[float, float]) -> Callable[[float], bool]:
    return lambda loss: limits[0] <= loss <= limits[1]

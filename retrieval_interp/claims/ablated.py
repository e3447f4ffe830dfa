"""Appendix E: the losses of A to D with heads replaced and with paths removed.

The rules are the paper's, so they are tested on the circuits by Appendix E to the letter: heads without a path are
uniform or identity. Rows of ours have the same rules for the circuits as they were found, with further mechanisms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from retrieval_interp.claims.claim import Claim, all_met, spread, verdict_of
from retrieval_interp.claims.found_circuit import FoundCircuit, found_circuit
from retrieval_interp.claims.found_circuits import THRESHOLD, Circuits, not_found
from retrieval_interp.claims.tables import Models

ONE_PATH = (0.17, 0.89)  # without one path above the first useful layer
FIRST_LAYER = (0.05, 0.1)  # with the row of a path in the first useful layer made uniform


@dataclass(frozen=True)
class _Ablated:
    """The losses of a circuit, by Appendix E to the letter or as it was found."""

    circuit: FoundCircuit
    letter: bool

    @property
    def replaced(self) -> float:
        """The loss with every head replaced."""
        return (self.circuit.literal if self.letter else self.circuit.combined).mean

    @property
    def low(self) -> bool:
        """Whether this loss is low; if it is not, a high loss without a path shows nothing."""
        return self.replaced < THRESHOLD

    @property
    def above(self) -> list[float]:
        """The losses without each path above the first useful layer."""
        return self._without(int.__gt__, ("uniform", "identity"))

    @property
    def first(self) -> list[float]:
        """The losses without each path in the first useful layer."""
        return self._without(int.__eq__, ("uniform",))

    @property
    def below(self) -> list[float]:
        """The losses without each path below it, of a pattern that the letter takes for a path."""
        return self._without(int.__lt__, ("uniform",))

    def _without(self, chosen: Callable[[int, int], bool], rows: tuple[str, ...]) -> list[float]:
        """The losses without each path whose layer, compared with the first useful one, is chosen."""
        if self.letter:
            losses = {path: [loss] for path, loss in self.circuit.without.items()}
        else:
            losses = {needed.path: [needed.losses[row] for row in rows] for needed in self.circuit.paths}
        layer = self.circuit.first_useful_layer
        return [loss for path, own in losses.items() if chosen(path.head.layer, layer) for loss in own]


def appendix_e(data: Path, models: Models, circuits: Circuits) -> list[Claim]:
    """Return the claims of Appendix E, to the letter and for the circuits as they were found."""
    folders = {
        f"{name} seed {seed}": folder for name in "AD" for seed, folder in models.other_seeds(data, name).items()
    }
    beside = {name: found_circuit(folder) for name, folder in folders.items()}
    return [claim for letter in (True, False) for claim in _rows(data, models, circuits, beside, letter)]


def _rows(data: Path, models: Models, circuits: Circuits, beside: Circuits, letter: bool) -> list[Claim]:
    known, others = (
        {name: _Ablated(circuit, letter) for name, circuit in each.items() if circuit} for each in (circuits, beside)
    )
    low = {name: own for name, own in known.items() if own.low}
    how = "row uniform" if letter else "row uniform or identity"

    def claim(
        what: str, paper: str, said: Callable[[list[_Ablated]], str], met: list[bool], tested: Mapping[str, _Ablated]
    ) -> Claim:
        told = [said([*tested.values()])] if tested else []
        if rejected := [name for name in known if name not in tested]:
            told.append(f"not tested for {', '.join(rejected)}, whose loss is not below {THRESHOLD} with every path")
        told += [
            f"{name}, beside them: {said([own]) if tested is known or own.low else 'not tested'}"
            for name, own in others.items()
        ]
        return Claim(
            "E" if letter else "E (ours)",
            f"A to D: {what}",
            paper,
            models.said(data, *models.folders),
            "; ".join([*told, *not_found(data, models, circuits)]),
            len(tested),
            models.command("discover", known),
            verdict_of(all_met(met, complete=len(tested) == len(circuits)), models.smaller),
        )

    def replaced(some: list[_Ablated]) -> str:
        return ", ".join(f"{own.replaced:.4f}" for own in some)

    def above(some: list[_Ablated]) -> str:
        losses = [loss for own in some for loss in own.above]
        within = sum(map(_within(ONE_PATH), losses))
        return f"{spread(losses)} ({how}; {within} of {len(losses)} losses in the paper's range)" if losses else "-"

    def first(some: list[_Ablated]) -> str:
        losses, below = [loss for own in some for loss in own.first], [loss for own in some for loss in own.below]
        return (spread(losses) if losses else "-") + (f" (below that layer {spread(below)})" if below else "")

    return [
        claim(
            "MSE with every head replaced with its mechanism",
            f"below {THRESHOLD}",
            replaced,
            [own.low for own in known.values()],
            known,
        ),
        claim(
            "MSE with one path above the first useful layer removed",
            _range(ONE_PATH),
            above,
            [*map(_within(ONE_PATH), (loss for own in low.values() for loss in own.above))],
            low,
        ),
        claim(
            "MSE with the row of a path in the first useful layer made uniform",
            _range(FIRST_LAYER),
            first,
            [*map(_within(FIRST_LAYER), (loss for own in low.values() for loss in own.first))],
            low,
        ),
    ]


def _range(limits: tuple[float, float]) -> str:
    return f"{limits[0]} to {limits[1]}"


def _within(limits: tuple[float, float]) -> Callable[[float], bool]:
    return lambda loss: limits[0] <= loss <= limits[1]

"""Section 9: the emergence of heads during the training of transformer D."""

from pathlib import Path
from typing import Any

from circuits.circuit_file import load_circuit
from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.tables import D, training_loss, validated
from retrieval_interp.experiments.emergence import emergence
from retrieval_interp.experiments.observations import observations
from retrieval_interp.models.model_dir import CIRCUIT
from retrieval_interp.reproduction.stored_report import circuit_found


def section_9(data: Path, report: dict[str, Any]) -> list[Claim]:
    """Return the claims on transformer D and its training; ``report`` is the report of its circuit."""
    folder = data / D
    loss, combined = training_loss(folder), report["loss"]["details"]["combined"]
    emerged = emergence(folder, load_circuit(folder / CIRCUIT))
    observed = {one.name: one for one in observations(emerged)}
    steps = f"{[*emerged.losses['loss']][-1]:,}"
    paper = {
        "i": ("an induction head emerges first and abruptly", "after 450 epochs"),
        "ii": ("a head above it quickly reuses it to fetch x2", "layer 22 above 14 and 21"),
        "iii": ("further heads lower the last partial losses, in order", "layers 23 and 24"),
        "iv": ("the last head emerges much later than the one before", "figure 7"),
    }
    return [
        Claim(
            "9.2",
            "D: validation MSE",
            "0.031",
            f"{loss['mean']:.4f} ± {loss['standard_error']:.4f} (at most 0.04), after {steps} steps instead of 6,400",
            1,
            f"retrieval-interp models export RUN data/{D}",
            verdict_of(loss["mean"] <= 0.04),
        ),
        Claim(
            "9.2",
            "D: MSE with all attention replaced with its circuit",
            "0.045",
            f"{combined['mean']:.4f} ± {combined['standard_error']:.4f} (below {report['threshold']:g})",
            1,
            validated([D]),
            verdict_of(circuit_found(report) and combined["mean"] < report["threshold"]),
        ),
        *(
            Claim(
                f"9.2 {name}",
                f"D: {what}",
                number,
                observed[name].sentence,
                1,
                f"retrieval-interp study emergence {D}",
                verdict_of(observed[name].holds),
            )
            for name, (what, number) in paper.items()
        ),
    ]

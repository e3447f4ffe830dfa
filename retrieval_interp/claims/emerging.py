"""Section 9: the emergence of heads during the training of transformer D."""

from pathlib import Path

from circuits.circuit_file import load_circuit
from retrieval_interp.claims.claim import Claim, verdict_of
from retrieval_interp.claims.found_circuits import Reports
from retrieval_interp.claims.tables import Models, loss_said, training_loss
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, Emergence, emergence
from retrieval_interp.experiments.observations import Observation, observations
from retrieval_interp.experiments.observed_circuit import observed_circuit
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT
from retrieval_interp.training.curves import read_attention

MSE = (0.0155, 0.062)  # the paper's 0.031 within a factor of two
EPOCHS = (225, 900)  # of the first arrival; the paper's 450 within a factor of two
WHAT = {
    "i": ("an induction head emerges first and abruptly", "after 450 epochs"),
    "ii": ("a head above it quickly reuses it to fetch x2", "layer 22 above 14 and 21"),
    "iii": ("further heads lower the last partial losses, in order", "layers 23 and 24"),
    "iv": ("the last head emerges much later than the one before", "figure 7"),
}


def section_9(data: Path, models: Models, reports: Reports) -> list[Claim]:
    """Return the claims on transformer D and its training."""
    folder, report = data / models.folders["D"], reports["D"]
    loss, combined = training_loss(folder), report["loss"]["details"]["combined"] if report else None
    seeds = [folder, *models.other_seeds(data, "D")]
    near = [MSE[0] <= training_loss(seed)["mean"] <= MSE[1] for seed in seeds]
    observed = [{one.name: one for one in observations(_emergence(seed))} for seed in seeds]

    def claim(
        section: str, what: str, paper: str, measured: str, holds: bool | None, command: str, met: list[bool] | None
    ) -> Claim:
        if met and len(met) > 1:
            measured += f" The rule is met in {sum(met)} of {len(met)} seeds."
        verdict, said = verdict_of(holds, models.smaller), models.said(data, "D")
        return Claim(
            section, f"D: {what}", paper, said, measured, len(met or [1]), models.command(command, "D"), verdict
        )

    replaced = (
        f"{loss_said(combined)} (below 0.05)" if combined else f"no circuit found: its own loss is {loss_said(loss)}"
    )
    return [
        claim(
            "9.2",
            "validation MSE",
            "0.031",
            f"{loss_said(loss)} (rule: {MSE[0]} to {MSE[1]}).",
            near[0],
            "models export RUN",
            near,
        ),
        claim(
            "9.2",
            "MSE with all attention replaced with its circuit",
            "0.045",
            replaced,
            combined["mean"] < 0.05 if combined else None,
            "discover",
            None,
        ),
        *(
            claim(
                f"9.2 {name}",
                *WHAT[name],
                observed[0][name].sentence,
                _holds(observed[0][name]),
                "study emergence",
                [_holds(own[name]) is True for own in observed],
            )
            for name in WHAT
        ),
    ]


def _emergence(folder: Path) -> Emergence:
    """Follow the paths of a model's circuit, or without one, all paths with much attention."""
    if (folder / CIRCUIT).exists():
        return emergence(folder, load_circuit(folder / CIRCUIT))
    return emergence(folder, observed_circuit(read_attention(folder / ATTENTION)))


def _holds(observed: Observation) -> bool | None:
    """Whether an observation meets the protocol's rule, which also bounds the epoch of the first arrival."""
    if observed.name == "i" and observed.holds:
        return EPOCHS[0] <= observed.numbers["step"] / STEPS_PER_EPOCH <= EPOCHS[1]
    return observed.holds

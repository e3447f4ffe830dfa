"""Section 9: the emergence of heads during the training of transformer D."""

from pathlib import Path

from retrieval_interp.claims.claim import Claim, Verdict, verdict_of
from retrieval_interp.claims.found_circuit import FoundCircuit, found_circuit
from retrieval_interp.claims.found_circuits import THRESHOLD
from retrieval_interp.claims.tables import Models, training_loss
from retrieval_interp.experiments.emergence import STEPS_PER_EPOCH, emergence
from retrieval_interp.experiments.observations import Observation, observations
from retrieval_interp.experiments.observed_circuit import circuit_to_follow

MSE = (0.0155, 0.062)  # the paper's 0.031 within a factor of two
EPOCHS = (225, 900)  # of the first arrival; the paper's 450 within a factor of two
WHAT = {
    "i": ("an induction head emerges first and abruptly", "after 450 epochs"),
    "ii": ("quickly after, a head above it brings x2", "layer 22 above 14 and 21"),
    "iii": ("the last partial losses fall in order", "x3, then x4 (figure 6)"),
    "iv": ("the last head emerges much later than the one before", "figure 7"),
}


def section_9(data: Path, models: Models, circuit: FoundCircuit | None) -> list[Claim]:
    """Return the claims on transformer D and its training; the other seeds stand beside it.

    Args:
        data: the folder of the trained transformers and their tables.
        models: the transformers.
        circuit: the circuit of D; None if none was found.
    """
    folder = data / models.folders["D"]
    others = models.other_seeds(data, "D")
    losses = {seed: training_loss(own) for seed, own in others.items()}
    found = {seed: own for seed, each in others.items() if (own := found_circuit(each))}
    followed = [_observed(own) for own in (folder, *others.values())]

    def claim(section: str, what: str, paper: str, measured: str, verdict: Verdict, by: str, runs: int) -> Claim:
        command = models.command(by, "D") if runs else "-"
        return Claim(section, f"D: {what}", paper, models.said(data, "D"), measured, runs, command, verdict)

    def replaced(section: str, letter: bool) -> Claim:
        own = {"": circuit, **{f"seed {seed}, beside it: ": each for seed, each in found.items()}}
        told = [f"{name}{each.literal if letter else each.combined}" for name, each in own.items() if each]
        if circuit is None:
            told.insert(0, f"no circuit found: its own loss is {training_loss(folder)}")
        loss = (circuit.literal if letter else circuit.combined).mean if circuit else None
        return claim(
            section,
            f"MSE with all attention replaced with its circuit{'' if letter else ', as it was found'}",
            "0.045" if letter else "-",
            f"{'; '.join(told)} (rule: below {THRESHOLD})",
            verdict_of(None if loss is None else loss < THRESHOLD, models.smaller),
            "discover",
            int(circuit is not None),
        )

    def observed(name: str) -> Claim:
        own, *beside = [_holds(one[name]) for one in followed]
        said = followed[0][name].sentence
        if beside:
            met, unmet, unknown = (beside.count(each) for each in (True, False, None))
            said += f" Of the {len(beside)} other seeds {met} meet the rule, {unmet} do not, {unknown} do not show it."
        verdict = verdict_of(own, models.smaller)
        return claim(f"9.2 {name}", *WHAT[name], said, verdict, "study emergence", 1 + len(beside))

    loss = training_loss(folder)
    told = [str(loss), *(f"seed {seed}, beside it: {each}" for seed, each in losses.items())]
    measured, near = f"{'; '.join(told)} (rule: {MSE[0]} to {MSE[1]})", MSE[0] <= loss.mean <= MSE[1]
    verdict = verdict_of(near, models.smaller)
    return [
        claim("9.2", "validation MSE", "0.031", measured, verdict, "models export RUN", 1 + len(losses)),
        replaced("9.2", letter=True),
        replaced("9.2 (ours)", letter=False),
        *map(observed, WHAT),
    ]


def _observed(folder: Path) -> dict[str, Observation]:
    """Return the observations on a run, along its circuit, or without one along all paths with much attention."""
    return {one.name: one for one in observations(emergence(folder, circuit_to_follow(folder)))}


def _holds(observed: Observation) -> bool | None:
    """Whether an observation meets the protocol's rule, which also bounds the epoch of the first arrival."""
    if observed.name == "i" and observed.holds:
        return EPOCHS[0] <= observed.numbers["step"] / STEPS_PER_EPOCH <= EPOCHS[1]
    return observed.holds

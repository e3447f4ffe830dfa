"""Section 8.2: the circuits of A, B and C."""

import json
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.files import read_text
from retrieval_interp.claims.claim import Claim, all_met, listed, verdict_of
from retrieval_interp.claims.found_circuit import FoundCircuit, Measured, found_circuit
from retrieval_interp.claims.tables import CONSTRUCTION, Models, training_loss

Circuits = Mapping[str, FoundCircuit | None]  # by the paper's names; None if no circuit was found
SOLVED = 0.01  # a validation MSE below it solves the task (paper, section 8.2)
HEADS = 4
THRESHOLD = 0.05  # a circuit's loss below it is low (paper, appendix E)


def section_8(data: Path, models: Models, circuits: Circuits) -> list[Claim]:
    """Return the claims on A, B and C; the other seeds stand beside them."""
    abc = {name: circuits[name] for name in models.abc}
    known = [circuit for circuit in abc.values() if circuit]
    beside = {seed: found_circuit(folder) for seed, folder in models.other_seeds(data, "A").items()}
    others = {seed: circuit for seed, circuit in beside.items() if circuit}
    unknown, complete = not_found(data, models, abc), len(known) == len(abc)

    def claim(
        what: str, paper: str, measured: str, holds: bool | None, of_others: list[str], section: str = "8.2"
    ) -> Claim:
        told = [measured] if known else []
        told += [f"seed {seed}, beside them: {said}" for seed, said in zip(others, of_others, strict=True)]
        by = models.command("discover", [name for name, circuit in abc.items() if circuit])
        said, text = models.said(data, *abc), "; ".join([*told, *unknown])
        verdict = verdict_of(holds, models.smaller)
        return Claim(section, f"A, B and C: {what}", paper, said, text, len(known), by, verdict)

    above = [{str(needed.path) for needed in circuit.above} for circuit in known]
    shared = [len(one & other) for one, other in combinations(above, 2)]
    half = [min(len(one), len(other)) / 2 for one, other in combinations(above, 2)]
    joins = [circuit.joins_pairs() for circuit in known]
    too = [circuit.joins_pairs(partial_too=True) for circuit in known]
    merged = [circuit.merged is not None and circuit.merged < THRESHOLD for circuit in known]
    return [
        _solved(data, models),
        claim(
            "heads in the circuit",
            str(HEADS),
            f"{listed(circuit.heads for circuit in known)} with at least one directly needed path",
            all_met([circuit.heads == HEADS for circuit in known], complete),
            [str(circuit.heads) for circuit in others.values()],
        ),
        claim(
            "the first useful head joins the members of every pair",
            "3 of 3",
            f"{sum(joins)} of {len(known)} ({sum(too)} of {len(known)} if fixed patterns that join pairs on some slots "
            "only count as useful, too)",
            all_met(joins, complete),
            ["yes" if circuit.joins_pairs() else "no" for circuit in others.values()],
        ),
        claim(
            "apart from the first head, the circuits are very different",
            "figure 5",
            f"{listed(map(len, above))} paths above the first useful layer"
            + (f"; every two circuits share {listed(shared)} (very different: less than half)" if shared else ""),
            all_met([number < most for number, most in zip(shared, half, strict=True)], complete),
            [f"{len(circuit.above)} paths" for circuit in others.values()],
        ),
        claim(
            "two trained heads can be merged",
            "-",
            f"in {sum(merged)} of {len(merged)} circuits, one head can take all paths of another (lowest loss "
            + ", ".join("-" if circuit.merged is None else f"{circuit.merged:.3f}" for circuit in known)
            + f"; the limit is {THRESHOLD:g})",
            True if any(merged) else False if complete else None,
            ["-" if circuit.merged is None else f"{circuit.merged:.3f}" for circuit in others.values()],
            "8.2 (ours)",
        ),
    ]


def fewest_heads(data: Path) -> Claim:
    """Return the claim that three heads are enough for D = 3: what is possible, whatever training finds."""
    path = data / CONSTRUCTION
    try:
        made = json.loads(read_text(path, "the output of `theory construct`"))
        hops, heads, loss, command = made["hops"], made["heads"], Measured.of(made["loss"]), made["command"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInput(f"{path}: not the output of `theory construct --json` ({error!r})") from error
    return Claim(
        "8.2",
        "three heads would be enough for D = 3, by design",
        "3 instead of 4",
        "compiled, not trained; reads tokens",
        f"a transformer with {heads} heads that solves D = {hops} with a loss of {loss}",
        0,
        command,
        verdict_of(loss.mean < SOLVED if (hops, heads) == (3, 3) else None),
    )


def not_found(data: Path, models: Models, circuits: Circuits) -> list[str]:
    """Return a text such as ``no circuit found for A (its own loss is 0.0987 ± 0.0012)``; none if all were found."""
    none = [name for name, circuit in circuits.items() if circuit is None]
    own = [f"{name} (its own loss is {training_loss(data / models.folders[name])})" for name in none]
    return [f"no circuit found for {', '.join(own)}"] if none else []


def _solved(data: Path, models: Models) -> Claim:
    """Return the claim on the loss of A, B and C."""
    losses = [training_loss(data / folder) for folder in models.abc.values()]
    others = {seed: training_loss(folder) for seed, folder in models.other_seeds(data, "A").items()}
    beside = [f"seed {seed}, beside them: {loss}" for seed, loss in others.items()]
    return Claim(
        "8.2",
        "A, B and C: validation MSE",
        f"below {SOLVED}",
        models.said(data, *models.abc),
        "; ".join([", ".join(map(str, losses)), *beside]),
        len(losses) + len(others),
        models.command("models export RUN", models.abc),
        verdict_of(all(loss.mean < SOLVED for loss in losses), models.smaller),
    )

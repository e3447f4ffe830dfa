"""Appendix E of the paper to the letter. ``validation.py`` runs more checks and allows more mechanisms.

Heads without a path are uniform or identity. Heads with paths are zero everywhere except for their ones. A head of the
circuit that has such a mechanism keeps it; of any other, the paths are kept, and the simplest mechanism is chosen.

    step 3      for each head alone, one of these mechanisms keeps the loss below the threshold; the simplest is chosen
    step 5      all chosen mechanisms together keep the loss below the threshold
    step 6      without any one path (its row uniform) the loss is not below the threshold; the first useful layer is
                excepted
"""

from __future__ import annotations

from circuits.checks.experiment import Experiment, is_low, listed, verdict
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.circuit_file import StoredCircuit
from circuits.flow.fixed_paths import paths_on_average, with_fixed_paths
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms.mechanism import Identity, Mechanism, Previous, Uniform
from circuits.mechanisms.one_hot import OneHot
from circuits.results import Decision, Result, Verdict, together

CLOSE = "Too close to the threshold to decide: "


class PaperProtocol(Result):
    """The results of Appendix E to the letter.

    Attributes:
        circuit: the hypothesis, with only the mechanisms of Appendix E.
        alone: for every head, the loss under each mechanism that it may have, with only this head replaced.
        combined: the loss with all heads replaced.
        without: for every path, the loss with the path's row uniform.
        verdicts: the verdicts of steps 3, 5 and 6.
        decision: their conjunction.
    """

    circuit: StoredCircuit
    alone: dict[Head, dict[str, DecidedLoss]]
    combined: DecidedLoss
    without: dict[AttentionPath, DecidedLoss]
    verdicts: tuple[Verdict, ...]
    decision: Decision


def paper_protocol(experiment: Experiment) -> PaperProtocol:
    """Test the paths of a circuit, including those of fixed patterns, by Appendix E to the letter.

    The threshold is a loss, as in the paper. Step 5 uses all examples, single heads and paths as many as they need.
    """
    test, circuit = experiment.test.with_threshold(experiment.threshold, absolute=True), experiment.circuit
    explicit = with_fixed_paths(circuit, paths_on_average(circuit, test.roles))
    tried = {head: _mechanisms(mechanism) for head, mechanism in explicit.heads.items()}
    singles = {(head, kind): Circuit({head: kind}) for head, kinds in tried.items() for kind in kinds}
    decided = test.test(singles)
    close = {
        one: singles[one]
        for head, kinds in tried.items()
        for one in ((head, kind) for kind in kinds)
        if all(decided[head, kind].decision != "below" for kind in kinds)
    }
    decided |= test.test(close, min_examples=experiment.n_examples)  # the mechanism with the lowest loss is chosen
    alone = {head: {kind.name: decided[head, kind] for kind in kinds} for head, kinds in tried.items()}
    chosen: dict[Head, Mechanism] = {}
    for head, kinds in tried.items():
        best = kinds[-1] if kinds[-1].paths else min(kinds, key=lambda kind: decided[head, kind].loss.mean)
        chosen[head] = next((kind for kind in kinds if decided[head, kind].loss.mean < test.threshold), best)
    literal = Circuit(chosen, circuit.name)
    combined = test.test({None: literal}, min_examples=experiment.n_examples)[None]
    without = test.test({path: literal.without(path) for path in literal.paths}, failing="below")
    verdicts = (
        _step_3(alone, test.threshold),
        is_low("step 5", "With all heads replaced the loss", combined, test.threshold),
        _step_6(literal, without, combined, test.threshold),
    )
    decision = together(one.decision for one in verdicts)
    return PaperProtocol(
        circuit=literal, alone=alone, combined=combined, without=without, verdicts=verdicts, decision=decision
    )


def _mechanisms(mechanism: Mechanism) -> list[Mechanism]:
    """Return the mechanisms that Appendix E allows for a head, simplest first; a hypothesis with a path is last."""
    simple: list[Mechanism] = [Uniform(), Identity()]
    if isinstance(mechanism, OneHot) and mechanism.paths:
        where = {ends: condition for ends, condition in mechanism.where if ends in mechanism.paths}
        literal = OneHot(mechanism.paths, "zero", where)
        return [literal] if mechanism == literal and not where else [*simple, literal]
    if mechanism in simple:
        return [mechanism]
    return [*simple, mechanism] if isinstance(mechanism, Previous) else simple


def _step_3(alone: dict[Head, dict[str, DecidedLoss]], threshold: float) -> Verdict:
    sides = ["below", "undecided", "above"]
    best = {
        head: min(losses.values(), key=lambda one: (sides.index(one.decision), one.loss.mean))
        for head, losses in alone.items()
    }
    near = [f"{head} ({one.loss})" for head, one in best.items() if one.decision == "undecided"]
    none = [f"{head} ({one.loss})" for head, one in best.items() if one.decision == "above"]
    low = len(alone) - len(none) - len(near)
    said = f"Replaced alone, {low} of {len(alone)} heads have a mechanism with a loss below {threshold:g}."
    return verdict("step 3", said, {"None does for ": none}, {CLOSE: near})


def _step_6(
    circuit: Circuit, without: dict[AttentionPath, DecidedLoss], combined: DecidedLoss, threshold: float
) -> Verdict:
    if combined.decision == "above":
        sentence = f"Not tested: with every path in place the loss is not below {threshold:g}."
        return Verdict(name="step 6", decision="undecided", sentence=sentence)
    first = min((head.layer for head in circuit.heads_with_paths), default=0)
    above = {path: one for path, one in without.items() if path.head.layer != first}
    near = [f"{path} ({one.loss})" for path, one in above.items() if one.decision == "undecided"]
    low = [f"{path} ({one.loss})" for path, one in above.items() if one.decision == "below"]
    excepted = [path for path, one in without.items() if one.decision == "below" and path.head.layer == first]
    missed = len(without) - len(low) - len(near) - len(excepted)
    said = f"Without any one of {missed} paths the loss is {threshold:g} or more."
    if excepted:
        said += f" It stays below without {listed(excepted)}; the paper allows this in the first useful layer."
    return verdict("step 6", said, {"It stays below without ": low}, {CLOSE: near})

"""Appendix E of the paper to the letter. ``validation.py`` runs more checks and allows more mechanisms.

Heads without a path are uniform or identity. Heads with paths are zero everywhere except for their ones.

    step 3      for each head alone, one of these mechanisms keeps the loss below the threshold; the simplest is chosen
    step 5      all chosen mechanisms together keep the loss below the threshold
    step 6      without any one path (its row uniform) the loss is not below the threshold; the first useful layer is
                excepted
"""

from dataclasses import dataclass
from typing import Any

from circuits.checks.statements import Decision, Statement, Verdict
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.flow.fixed_paths import paths_on_average, with_fixed_paths
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Identity, Mechanism, Uniform
from circuits.mechanisms.one_hot import OneHot


@dataclass(frozen=True)
class PaperProtocol:
    """The results of Appendix E to the letter.

    Attributes:
        circuit: the hypothesis, with only the mechanisms of Appendix E.
        alone: for every head, the loss under each mechanism that it may have, with only this head replaced.
        combined: the loss with all heads replaced.
        without: for every path, the loss with the path's row uniform.
        verdicts: the verdicts of steps 3, 5 and 6.
    """

    circuit: Circuit
    alone: dict[Head, dict[str, Loss]]
    combined: Loss
    without: dict[AttentionPath, Loss]
    verdicts: tuple[Verdict, ...]

    @property
    def decision(self) -> Decision:
        """``fails`` if a step failed, ``holds`` if all steps were passed, else ``undecided``."""
        return Statement("paper", self.verdicts).decision

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers and texts; docs/reports.md explains every key."""
        return {
            "decision": self.decision,
            "circuit": {str(head): str(mechanism) for head, mechanism in self.circuit.heads.items()},
            "loss": self.combined.to_json(),
            "heads": {
                str(head): {name: loss.to_json() for name, loss in losses.items()}
                for head, losses in self.alone.items()
            },
            "paths": {str(path): loss.to_json() for path, loss in self.without.items()},
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
        }


def paper_protocol(test: SequentialTest, circuit: Circuit) -> PaperProtocol:
    """Test a circuit by Appendix E to the letter.

    Step 5 uses all examples of the test. Single heads and paths use as many as their decision needs.

    Args:
        test: the sequential test of the model, on fresh examples.
        circuit: the hypothesis. Only its paths are used, including the paths of fixed patterns.
    """
    explicit = with_fixed_paths(circuit, test.roles, paths_on_average)
    tried = {head: _mechanisms(mechanism) for head, mechanism in explicit.heads.items()}
    singles = {(head, own): Circuit({head: own}) for head, owns in tried.items() for own in owns}
    decided = test.test(singles)
    none_low = [head for head, owns in tried.items() if all(decided[head, own].decision != "below" for own in owns)]
    close = [(head, own) for head in none_low for own in tried[head]]  # the mechanism with the lowest loss is chosen
    losses = {one: own.loss for one, own in decided.items()} | dict(
        zip(close, test.measure(singles[one] for one in close), strict=True)
    )
    alone = {head: {own.name: losses[head, own] for own in owns} for head, owns in tried.items()}
    chosen: dict[Head, Mechanism] = {}
    for head, owns in tried.items():
        low = [own for own in owns if losses[head, own].mean < test.threshold]
        if low or owns[-1].paths:
            chosen[head] = (low or owns[-1:])[0]
        else:
            chosen[head] = min(owns, key=lambda own, head=head: losses[head, own].mean)  # type: ignore[misc]
    literal = Circuit(chosen, circuit.name)
    (combined,) = test.measure([literal])
    without = test.test({path: literal.without(path) for path in literal.paths})
    found = {path: own.loss for path, own in without.items()}
    verdicts = (
        _step_3(alone, test.threshold),
        _step_5(combined, test.threshold),
        _step_6(literal, found, combined, test.threshold),
    )
    return PaperProtocol(literal, alone, combined, found, verdicts)


def _mechanisms(mechanism: Mechanism) -> list[Mechanism]:
    """Return the mechanisms that Appendix E allows for a head, simplest first; a hypothesis with a path is last."""
    simple: list[Mechanism] = [Uniform(), Identity()]
    if isinstance(mechanism, OneHot) and mechanism.paths:
        where = {ends: condition for ends, condition in mechanism.where if ends in mechanism.paths}
        return [*simple, OneHot(mechanism.paths, "zero", where)]
    return [*simple, mechanism] if mechanism.paths else simple


def _step_3(alone: dict[Head, dict[str, Loss]], threshold: float) -> Verdict:
    best = {head: min(losses.values(), key=lambda loss: loss.mean) for head, losses in alone.items()}
    none = [f"{head} ({loss})" for head, loss in best.items() if loss.mean >= threshold and not loss.near(threshold)]
    open_ = [f"{head} ({loss})" for head, loss in best.items() if loss.near(threshold)]
    having = len(alone) - len(none) - len(open_)
    sentence = f"Replaced alone, {having} of {len(alone)} heads have a mechanism with a loss below {threshold:g}."
    if none:
        sentence += f" No mechanism has a loss below {threshold:g} for {', '.join(none)}."
    if open_:
        sentence += f" Too close to the threshold to decide: {', '.join(open_)}."
    return Verdict("step 3", "failed" if none else "undetermined" if open_ else "passed", sentence)


def _step_5(combined: Loss, threshold: float) -> Verdict:
    low = combined.mean < threshold
    sentence = f"With all heads replaced the loss is {combined}, {'below' if low else 'not below'} {threshold:g}."
    return Verdict("step 5", "undetermined" if combined.near(threshold) else "passed" if low else "failed", sentence)


def _step_6(circuit: Circuit, without: dict[AttentionPath, Loss], combined: Loss, threshold: float) -> Verdict:
    if combined.mean >= threshold:
        return Verdict("step 6", "failed", f"Not tested: with every path in place the loss is not below {threshold:g}.")
    first = min((head.layer for head in circuit.heads_with_paths), default=0)
    above = {path: loss for path, loss in without.items() if path.head.layer != first}
    open_ = [f"{path} ({loss})" for path, loss in above.items() if loss.near(threshold)]
    excessive = [
        f"{path} ({loss})" for path, loss in above.items() if loss.mean < threshold and not loss.near(threshold)
    ]
    excepted = [str(path) for path, loss in without.items() if loss.mean < threshold and path.head.layer == first]
    missed = len(without) - len(excessive) - len(open_) - len(excepted)
    sentence = f"Without any one of {missed} paths the loss is {threshold:g} or more."
    if excepted:
        sentence += f" It stays below without {'; '.join(excepted)}; the paper allows this in the first useful layer."
    if excessive:
        sentence += f" It stays below without {'; '.join(excessive)}."
    if open_:
        sentence += f" Too close to the threshold to decide: {'; '.join(open_)}."
    return Verdict("step 6", "failed" if excessive else "undetermined" if open_ else "passed", sentence)

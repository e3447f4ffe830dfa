"""What a validation found: typed results, tables, and the JSON of docs/report.md."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from jaxtyping import Float

from circuits.circuit import Circuit, Head, Path
from circuits.circuit_file import dump_circuit
from circuits.content import ContentOrPosition
from circuits.faithfulness import Faithfulness
from circuits.lazy import pandas as pd
from circuits.lazy import torch
from circuits.loss import Loss
from circuits.paper_protocol import PaperProtocol
from circuits.soundness import Soundness
from circuits.statements import REQUIRED, STATEMENTS, Decision, Protocol, Statement, Verdict

SCHEMA = 4
Alone = Literal["holds", "fails", "undetermined"]
Needed = Literal["directly", "enabling", "undecided", "no"]


@dataclass(frozen=True)
class HeadResult:
    """Step 3 for one head: its loss when it alone is replaced, by mechanism.

    Attributes:
        head: the head.
        hypothesis: name of its mechanism in the circuit.
        losses: under ``uniform``, ``identity``, ``previous`` and, for a one-hot hypothesis, ``one_hot``.
        simplest: the simplest mechanism below the threshold, if any; by three standard errors at least.
        alone: ``holds`` if the hypothesis stays below the threshold; ``fails`` if it does not and another mechanism
            does; ``undetermined`` if none does, or chance could decide it. Where none does, the heads above read more
            of this one than any of them leaves, and only the combined ablation, which prescribes those heads too, can
            judge it.
    """

    head: Head
    hypothesis: str
    losses: dict[str, Loss]
    simplest: str | None
    alone: Alone

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the hypothesis for this head alone."""
        return self.alone != "fails"


@dataclass(frozen=True)
class PathResult:
    """Step 6 for one path: the loss without it, by what its row becomes.

    A path can be needed in two ways. It may carry what is answered: then the whole circuit fails without it
    (``losses``, the paper's step 6). Or it may only tell the heads above where to attend; the whole circuit, which
    prescribes their attention, then hardly misses it. The paper saw this in the first useful layer, where the error
    stayed at 0.05 to 0.1, and took the path to "enable the information flow in the subsequent layers". Whether it
    does is measured for the paths that the whole circuit does not miss: ``enabling`` is the loss when the heads
    above some layer are left to attend by themselves.

    Attributes:
        path: the path.
        losses: of the whole circuit, with this row ``uniform`` and with this row ``identity``.
        enabling: the same with all heads above some layer untouched, that from which on they miss the row most; empty
            where ``losses`` exceed the threshold, or the heads above go astray even with the path in place.
        enabled_layer: that layer, for the row with which the path is missed least.
        redirected: the loss with the path led to another role instead, for every role that its source can see; of
            the whole circuit, or with the heads above untouched where the path is needed by those. Empty for a path
            that is not needed, and for a ``Previous`` head.
        rivals: the roles among those that keep the loss below the threshold, or too near to it to say: the test does
            not tell them apart.
        better: those whose loss is lower than the circuit's, by more than three standard errors of the difference.
        needed: ``directly`` if both ``losses`` exceed the threshold; ``no`` if with one of the rows neither its loss
            nor its ``enabling`` one does; ``enabling`` otherwise; ``undecided`` if the loss that decides it is within
            three standard errors of the threshold, or if the circuit's is not low with the path in place.
        weak: whether it is needed directly, but one of ``losses`` stays below twice the threshold.
        in_first_useful_layer: whether it lies in the lowest layer that has a path, that of a fixed pattern too.
    """

    path: Path
    losses: dict[str, Loss]
    enabling: dict[str, Loss]
    enabled_layer: int | None
    redirected: dict[str, Loss]
    rivals: tuple[str, ...]
    better: tuple[str, ...]
    needed: Needed
    weak: bool
    in_first_useful_layer: bool

    @property
    def necessary(self) -> bool:
        """Whether nothing shows that the path is superfluous."""
        return self.needed != "no"

    @property
    def nearest_rival(self) -> tuple[str, Loss] | None:
        """The other target with the lowest loss, if any was tried."""
        return min(self.redirected.items(), key=lambda item: item[1].mean, default=None)


@dataclass(frozen=True)
class Merge:
    """All paths of one head carried by another instead, which then attends for both.

    Attributes:
        giver: the head that is left without a path.
        taker: the head that carries them too.
        loss: of the whole circuit, the emptied head uniform or identity, whichever is lower.
    """

    giver: Head
    taker: Head
    loss: Loss

    def __str__(self) -> str:
        return f"{self.giver} into {self.taker}"


@dataclass(frozen=True)
class ValidationReport:
    """All that ``validate`` found; ``to_json`` is its documented, stable form.

    Attributes:
        circuit: the hypothesis.
        threshold: a loss below it counts as low.
        level: the same for single paths: lower than the threshold where the circuit explains all that the model does.
        n_examples: how many fresh examples there were; what is clear on fewer was measured on those.
        seed: of the examples.
        roles: the names of the roles, in the order of ``attention``.
        full: the model's own loss.
        combined: with all named heads replaced (step 5).
        up_to: for every layer, with the named heads up to it replaced and those above untouched.
        heads: step 3.
        paths: step 6 and the rivals.
        merges: every pair of heads that the whole circuit needs and that could be one, best first; none where the
            circuit itself is not below the threshold.
        verdicts: the outcome of every step.
        content: which heads look at content, and which at positions.
        faithfulness: the circuit's heads without the others.
        paper: Appendix E to the letter.
        protocol: by which of the two ``decision`` is made.
        attention: average attention from role to role in the untouched model.
        flow: what the paths could carry by information flow; None where the problem has no layout.
        about: what else is known of the model.
    """

    circuit: Circuit
    threshold: float
    level: float
    n_examples: int
    seed: int
    roles: tuple[str, ...]
    full: Loss
    combined: Loss
    up_to: tuple[Loss, ...]
    heads: tuple[HeadResult, ...]
    paths: tuple[PathResult, ...]
    merges: tuple[Merge, ...]
    verdicts: tuple[Verdict, ...]
    content: ContentOrPosition
    faithfulness: Faithfulness
    paper: PaperProtocol
    protocol: Protocol
    attention: Float[torch.Tensor, "layer head query_role key_role"] = field(repr=False)
    flow: Soundness | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """What is said of the circuit, each with the steps that it rests on."""
        return tuple(
            Statement(name, tuple(verdict for verdict in self.verdicts if verdict.step in steps))
            for name, steps in STATEMENTS.items()
        )

    @property
    def decision(self) -> Decision:
        """``holds`` only where no statement fails, and the circuit accounts for the output and is faithful."""
        if self.protocol == "paper":
            return self.paper.decision
        decisions = {statement.name: statement.decision for statement in self.statements}
        if "fails" in decisions.values():
            return "fails"
        return "holds" if all(decisions[name] == "holds" for name in REQUIRED) else "undecided"

    @property
    def passed(self) -> bool:
        """Whether the circuit holds; one that is undecided has not passed."""
        return self.decision == "holds"

    @property
    def headline(self) -> str:
        """The decision with what it rests on, in a line."""
        if self.protocol == "paper":
            return f"{self.decision}, by Appendix E to the letter"
        said = {statement.name: statement.decision for statement in self.statements}
        others = [f"{name}: {decision}" for name, decision in said.items() if decision != "holds"]
        return self.decision + (f" ({'; '.join(others)})" if others else "")

    @property
    def chance_could_decide(self) -> bool:
        """Whether more examples could change the outcome of step 5, or of step 6 where step 5 is passed."""
        if self.combined.mean >= self.threshold:
            return self.combined.near(self.threshold)
        return self.combined.near(self.threshold) or any(path.needed == "undecided" for path in self.paths)

    def flow_sentences(self) -> tuple[str, ...]:
        """What information flow says of the circuit, beside its loss."""
        return self.flow.sentences(self.combined.mean < self.threshold) if self.flow else ()

    def heads_table(self) -> pd.DataFrame:
        """Step 3 as a table: a row for each named head, its loss under each mechanism."""
        rows = [
            {"head": str(h.head), "hypothesis": h.hypothesis, **_columns(h.losses)["losses"], "alone": h.alone}
            for h in self.heads
        ]
        return pd.DataFrame(rows).set_index("head")

    def paths_table(self) -> pd.DataFrame:
        """Step 6 as a table: a row for each path, the loss without it."""
        rows = []
        for p in self.paths:
            enabling = {f"heads above free, {name}": loss.mean for name, loss in p.enabling.items()}
            own = {"needed": p.needed, "rivals": ", ".join(p.rivals)}
            rows.append({"path": str(p.path), **_columns(p.losses)["losses"], **enabling, **own})
        return pd.DataFrame(rows, columns=None if rows else ["path"]).set_index("path")

    def to_json(self) -> dict[str, Any]:
        """The report as plain numbers and texts; docs/report.md says what each key holds."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "decision": self.decision,
            "protocol": self.protocol,
            "statements": {statement.name: statement.decision for statement in self.statements},
            "verdicts": [verdict.to_json() for verdict in self.verdicts],
            "paper": self.paper.to_json(),
            "content_or_position": self.content.to_json(),
            "faithfulness": self.faithfulness.to_json(self.full),
            "threshold": self.threshold,
            "level": self.level,
            "examples": self.n_examples,
            "seed": self.seed,
            "about": self.about,
            "circuit": {
                "name": self.circuit.name,
                "description": self.circuit.description,
                "yaml": dump_circuit(self.circuit),
                "sha256": self.circuit.digest,
            },
            "loss": {
                "full": self.full.mean,
                "combined": self.combined.mean,
                "details": {"full": self.full.to_json(), "combined": self.combined.to_json()},
                "up_to_layer": [loss.to_json() for loss in self.up_to],
            },
            "heads": [
                {
                    "head": str(h.head),
                    "layer": h.head.layer,
                    "index": h.head.head,
                    "hypothesis": h.hypothesis,
                    **_columns(h.losses),
                    "simplest": h.simplest,
                    "alone": h.alone,
                    "passed": h.passed,
                }
                for h in self.heads
            ],
            "paths": [
                {
                    "path": str(p.path),
                    "layer": p.path.head.layer,
                    "index": p.path.head.head,
                    "from": p.path.source,
                    "to": p.path.target,
                    **_columns(p.losses),
                    "enabling": {**_columns(p.enabling), "layer": p.enabled_layer},
                    "redirected": _columns(p.redirected),
                    "rivals": list(p.rivals),
                    "better": list(p.better),
                    "needed": p.needed,
                    "necessary": p.necessary,
                    "weak": p.weak,
                    "in_first_useful_layer": p.in_first_useful_layer,
                }
                for p in self.paths
            ],
            "merges": [
                {
                    "from": str(m.giver),
                    "into": str(m.taker),
                    "loss": m.loss.mean,
                    "standard_error": m.loss.standard_error,
                    "examples": m.loss.n_examples,
                }
                for m in self.merges
            ],
            "flow": self.flow.to_json(self.combined.mean < self.threshold) if self.flow else None,
        }


def _columns(losses: dict[str, Loss]) -> dict[str, dict[str, float]]:
    return {
        "losses": {name: loss.mean for name, loss in losses.items()},
        "standard_errors": {name: loss.standard_error for name, loss in losses.items()},
        "examples": {name: loss.n_examples for name, loss in losses.items()},
    }

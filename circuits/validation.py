"""Is this the circuit, all of the circuit, and nothing but the circuit? (paper, Appendix E)

Steps 1 and 2 are the hypothesis itself. Here the others are carried out, on fresh examples:

    unablated   the model solves its task
    step 3      each head alone can be replaced by its hypothesised mechanism
    step 4      every head of the model has one
    step 5      all of them together can
    step 6      no attention path can be taken away from that
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import pandas as pd
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.ablation import evaluate
from circuits.attention import role_attention
from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.mechanisms import SIMPLE
from circuits.problem import Problem

SCHEMA = 1
REPLACEMENTS = ("uniform", "identity")
ATTENTION_EXAMPLES = 256


@dataclass(frozen=True)
class Loss:
    """A loss over examples.

    Attributes:
        mean: over examples and parts.
        standard_error: of that mean, from the spread over examples.
        parts: the partial losses, by name.
    """

    mean: float
    standard_error: float
    parts: dict[str, float]

    @classmethod
    def of(cls, losses: Float[Tensor, "example part"], names: tuple[str, ...]) -> "Loss":
        """Summarise the partial losses of every example."""
        each = losses.double().mean(dim=1)
        spread = each.std().item() if len(each) > 1 else float("nan")
        parts = dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))
        return cls(each.mean().item(), spread / len(each) ** 0.5, parts)

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f}"

    def to_json(self) -> dict[str, Any]:
        """``mean``, ``standard_error`` and ``parts``."""
        return {"mean": self.mean, "standard_error": self.standard_error, "parts": self.parts}


@dataclass(frozen=True)
class HeadResult:
    """Step 3 for one head: its loss when it alone is replaced, by mechanism.

    Attributes:
        head: the head.
        hypothesis: name of its mechanism in the circuit.
        losses: under ``uniform``, ``identity``, ``previous`` and, for a one-hot hypothesis, ``one_hot``.
        simplest: the simplest mechanism below the threshold, if any.
        alone: ``holds`` if the hypothesis stays below the threshold; ``fails`` if it does not and another mechanism
            does; ``undetermined`` if none does. Then the heads above read more of this one than any of them leaves,
            and only the combined ablation, which prescribes those heads too, can judge it.
    """

    head: Head
    hypothesis: str
    losses: dict[str, Loss]
    simplest: str | None
    alone: Literal["holds", "fails", "undetermined"]

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
    does is measured here: ``enabling`` is the loss when the heads above the path are left to attend by themselves.

    Attributes:
        path: the path.
        losses: of the whole circuit, with this row ``uniform`` and with this row ``identity``.
        enabling: the same with all heads above the path untouched.
        needed: ``directly`` if both ``losses`` exceed the threshold; ``enabling`` if both of those do, and would not
            with the path in place; or ``no``.
        weak: whether it is needed directly, but one of ``losses`` stays below twice the threshold.
        in_first_useful_layer: whether it lies in the lowest layer that has a path.
    """

    path: Path
    losses: dict[str, Loss]
    enabling: dict[str, Loss]
    needed: Literal["directly", "enabling", "no"]
    weak: bool
    in_first_useful_layer: bool

    @property
    def necessary(self) -> bool:
        """Whether the path is needed in either way."""
        return self.needed != "no"


@dataclass(frozen=True)
class Verdict:
    """One step's outcome, with a sentence for people.

    ``undetermined`` is said of step 3 where no mechanism tried replaces some of the heads alone: nothing speaks
    against the hypothesis for them, but nothing for it either until the combined ablation.
    """

    step: str
    outcome: Literal["passed", "failed", "undetermined"]
    sentence: str

    @property
    def passed(self) -> bool:
        """Whether the step does not speak against the circuit."""
        return self.outcome != "failed"


@dataclass(frozen=True)
class ValidationReport:
    """All that ``validate`` found; ``to_json`` is its documented, stable form."""

    circuit: Circuit
    threshold: float
    n_examples: int
    seed: int
    roles: tuple[str, ...]
    full: Loss
    combined: Loss
    heads: tuple[HeadResult, ...]
    paths: tuple[PathResult, ...]
    verdicts: tuple[Verdict, ...]
    attention: Float[Tensor, "layer head query_role key_role"] = field(repr=False)
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no step failed."""
        return all(verdict.passed for verdict in self.verdicts)

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
            rows.append({"path": str(p.path), **_columns(p.losses)["losses"], **enabling, "needed": p.needed})
        return pd.DataFrame(rows, columns=None if rows else ["path"]).set_index("path")

    def to_json(self) -> dict[str, Any]:
        """The report as plain numbers and texts.

        ``schema``, ``passed``, ``verdicts[]`` (step, outcome, passed, sentence), ``threshold``, ``examples``, ``seed``,
        ``about`` (model, versions ...), ``loss`` (full, combined: means; details: both with standard error and
        parts), ``heads[]`` (head, layer, index, hypothesis, losses and standard_errors by mechanism, simplest,
        alone, passed), ``paths[]`` (path, layer, index, from, to, losses and standard_errors by replacement, the
        same under ``enabling``, needed, necessary, weak, in_first_useful_layer) and ``circuit`` (name, description).
        """
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "verdicts": [
                {"step": v.step, "outcome": v.outcome, "passed": v.passed, "sentence": v.sentence}
                for v in self.verdicts
            ],
            "threshold": self.threshold,
            "examples": self.n_examples,
            "seed": self.seed,
            "about": self.about,
            "circuit": {"name": self.circuit.name, "description": self.circuit.description},
            "loss": {
                "full": self.full.mean,
                "combined": self.combined.mean,
                "details": {"full": self.full.to_json(), "combined": self.combined.to_json()},
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
                    "enabling": _columns(p.enabling),
                    "needed": p.needed,
                    "necessary": p.necessary,
                    "weak": p.weak,
                    "in_first_useful_layer": p.in_first_useful_layer,
                }
                for p in self.paths
            ],
        }


def _columns(losses: dict[str, Loss]) -> dict[str, dict[str, float]]:
    means = {name: loss.mean for name, loss in losses.items()}
    return {"losses": means, "standard_errors": {name: loss.standard_error for name, loss in losses.items()}}


def validate(
    model: HookedTransformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    threshold: float = 0.05,
    progress: Callable[[float], None] = lambda share: None,
    about: dict[str, Any] | None = None,
) -> ValidationReport:
    """Hold a circuit against a model (paper, Appendix E, steps 3 to 6).

    Args:
        model: any HookedTransformer without padding.
        problem: its task: examples with roles, and a loss.
        circuit: the hypothesis.
        n_examples: fresh examples, drawn with ``seed``.
        seed: the same seed gives the same report.
        threshold: a loss below it counts as low; the paper takes 0.05.
        progress: is told the finished share, 0 to 1.
        about: what else the report should say of the model.

    Raises:
        BadInput: the circuit names no head or does not fit, or a number is out of range.
    """
    if n_examples < 2:
        raise BadInput(f"{n_examples} examples; expected at least 2, for a standard error")
    if not 0 < threshold < float("inf"):
        raise BadInput(f"the threshold is {threshold}; expected a number above 0")
    if not circuit.heads:
        raise BadInput("the circuit names no head; there is nothing to validate")
    device = next(model.parameters()).device
    examples = problem.examples(n_examples, seed).to(device)
    circuit.check(examples.roles, model.cfg.n_layers, model.cfg.n_heads)

    variants: dict[tuple[str, Any, str], Circuit] = {("full", None, ""): Circuit(), ("combined", None, ""): circuit}
    for head, mechanism in circuit.heads.items():
        for name, candidate in {**SIMPLE, mechanism.name: mechanism}.items():
            variants["head", head, name] = Circuit({head: candidate})
    for path in circuit.paths:
        for instead in REPLACEMENTS:
            without = circuit.without(path, instead)
            variants["path", path, instead] = without
            variants["enabled", path.head.layer, ""] = circuit.up_to(path.head.layer)
            variants["enabling", path, instead] = without.up_to(path.head.layer)
    tensor = evaluate(model, problem, examples, list(variants.values()), progress)
    losses = {key: Loss.of(own, problem.parts) for key, own in zip(variants, tensor, strict=True)}

    heads = []
    for head, mechanism in circuit.heads.items():
        alone = {name: losses["head", head, name] for name in {**SIMPLE, mechanism.name: mechanism}}
        simplest = next((name for name, loss in alone.items() if loss.mean < threshold), None)
        outcome: Literal["holds", "fails", "undetermined"] = "undetermined" if simplest is None else "fails"
        if alone[mechanism.name].mean < threshold:
            outcome = "holds"
        heads.append(HeadResult(head, mechanism.name, alone, simplest, outcome))
    everything = [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]
    unnamed = [head for head in everything if head not in circuit.heads]
    first_useful = min((path.head.layer for path in circuit.paths), default=None)
    paths = []
    for path in circuit.paths:
        direct = {instead: losses["path", path, instead] for instead in REPLACEMENTS}
        enabling = {instead: losses["enabling", path, instead] for instead in REPLACEMENTS}
        least, least_enabling = (min(loss.mean for loss in kind.values()) for kind in (direct, enabling))
        needed: Literal["directly", "enabling", "no"] = "no"
        if least > threshold:
            needed = "directly"
        elif least_enabling > threshold > losses["enabled", path.head.layer, ""].mean:
            needed = "enabling"
        weak = needed == "directly" and least < 2 * threshold
        paths.append(PathResult(path, direct, enabling, needed, weak, path.head.layer == first_useful))

    return ValidationReport(
        circuit=circuit,
        threshold=threshold,
        n_examples=n_examples,
        seed=seed,
        roles=problem.roles,
        full=losses["full", None, ""],
        combined=losses["combined", None, ""],
        heads=tuple(heads),
        paths=tuple(paths),
        verdicts=_verdicts(losses["full", None, ""], losses["combined", None, ""], heads, paths, unnamed, threshold),
        attention=role_attention(model, examples.take(slice(0, ATTENTION_EXAMPLES))).cpu(),
        about=about or {},
    )


def _verdicts(
    full: Loss,
    combined: Loss,
    heads: list[HeadResult],
    paths: list[PathResult],
    unnamed: list[Head],
    threshold: float,
) -> tuple[Verdict, ...]:
    low = f"the threshold {threshold:g}"
    wrong = [f"{h.head} ({h.simplest} would do, {h.hypothesis} does not)" for h in heads if h.alone == "fails"]
    open_ = [str(h.head) for h in heads if h.alone == "undetermined"]
    holding = sum(h.alone == "holds" for h in heads)
    alone = f"With one head replaced alone the loss stays below {low} for {holding} of {len(heads)} named heads."
    if wrong:
        alone += f" Wrong: {', '.join(wrong)}."
    if open_:
        alone += f" No mechanism tried does so for {', '.join(open_)}, which only step 5 can judge."
    named = "Every head of the model has a mechanism."
    if unnamed:
        some = ", ".join(map(str, unnamed[:6])) + (" ..." if len(unnamed) > 6 else "")
        named = f"{len(unnamed)} heads of the model have no mechanism and stay as they are: {some}."
    judged = combined.mean < threshold
    superfluous = [str(p.path) for p in paths if not p.necessary]
    weak = [str(p.path) for p in paths if p.weak]
    enabling = [str(p.path) for p in paths if p.needed == "enabling"]
    needed = f"Each of the {len(paths)} paths is needed: without it the loss exceeds {low}."
    if not judged:
        needed = "Cannot be judged: even with every path in place the loss is not below the threshold."
    elif superfluous:
        needed = f"Not needed: {'; '.join(superfluous)}. Without it the loss stays below {low}."
    elif not paths:
        needed = "The circuit has no path, so none is superfluous."
    else:
        if enabling:
            needed += f" Needed only by the heads above, to find where to attend: {'; '.join(enabling)}."
        if weak:
            needed += f" Least needed (below {2 * threshold:g}): {'; '.join(weak)}."
    step_3: Literal["passed", "failed", "undetermined"] = "failed" if wrong else "undetermined" if open_ else "passed"
    return (
        Verdict("unablated", _outcome(full.mean < threshold), _against("The model's own loss", full, threshold)),
        Verdict("step 3", step_3, alone),
        Verdict("step 4", _outcome(not unnamed), named),
        Verdict("step 5", _outcome(judged), _against("With all heads replaced the loss", combined, threshold)),
        Verdict("step 6", _outcome(judged and not superfluous), needed),
    )


def _outcome(passed: bool) -> Literal["passed", "failed"]:
    return "passed" if passed else "failed"


def _against(what: str, loss: Loss, threshold: float) -> str:
    side = "below" if loss.mean < threshold else "not below"
    near = abs(loss.mean - threshold) < 2 * loss.standard_error
    chance = " That is within two standard errors: chance could decide it, take more examples." if near else ""
    return f"{what} is {loss}, {side} the threshold {threshold:g}.{chance}"

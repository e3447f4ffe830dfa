"""Is this the circuit, all of the circuit, and nothing but the circuit? (paper, Appendix E)

Steps 1 and 2 are the hypothesis itself. Here the others are carried out, on fresh examples:

    unablated   the model solves its task
    step 3      each head alone can be replaced by its hypothesised mechanism
    step 4      every head of the model has one
    step 5      all of them together can
    step 6      no attention path can be taken away from that
    rivals      no attention path could lead elsewhere instead (ours: the paper does not ask)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from transformer_lens import HookedTransformer

from circuits.attention import role_attention
from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.judge import Judge
from circuits.loss import SURE, Loss
from circuits.mechanisms import SIMPLE, OneHot
from circuits.problem import Problem
from circuits.validation_report import Alone, HeadResult, Needed, PathResult, ValidationReport
from circuits.verdicts import verdicts

REPLACEMENTS = ("uniform", "identity")
ATTENTION_EXAMPLES = 256


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

    judge = Judge(model, problem, examples, threshold)
    removed = {path: {row: circuit.without(path, row) for row in REPLACEMENTS} for path in circuit.paths}
    without = [changed for rows in removed.values() for changed in rows.values()]
    full, combined, *_ = judge.measure([Circuit(), circuit, *without], lambda share: progress(0.5 * share))
    up_to = [judgement.loss for judgement in judge(circuit.up_to(layer) for layer in range(model.cfg.n_layers))]
    progress(0.6)
    below = [layer for layer, loss in enumerate(up_to[:-1]) if loss.mean < threshold]
    paths = []
    for path in circuit.paths:
        paths.append(_path_result(judge, circuit, path, removed[path], below))
        progress(0.6 + 0.2 * len(paths) / len(circuit.paths))
    heads = _each_alone(judge, circuit, lambda share: progress(0.8 + 0.2 * share))
    everything = [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]
    unnamed = [head for head in everything if head not in circuit.heads]

    return ValidationReport(
        circuit=circuit,
        threshold=threshold,
        n_examples=n_examples,
        seed=seed,
        roles=problem.roles,
        full=full,
        combined=combined,
        up_to=tuple(up_to),
        heads=tuple(heads),
        paths=tuple(paths),
        verdicts=verdicts(full, combined, heads, paths, unnamed, threshold),
        attention=role_attention(model, examples.take(slice(0, ATTENTION_EXAMPLES))).cpu(),
        about=about or {},
    )


def _path_result(
    judge: Judge, circuit: Circuit, path: Path, removed: Mapping[str, Circuit], explained: Sequence[int]
) -> PathResult:
    """Step 6 and the rivals for one path; ``explained`` are the layers above which all heads may be left untouched."""
    direct = dict(zip(removed, judge.measure(removed.values()), strict=True))
    top = judge.model.cfg.n_layers - 1
    needed: Needed = "directly"
    enabling: dict[str, Loss] = {}
    height = guided = top
    if not all(loss.mean > judge.threshold and not loss.near(judge.threshold) for loss in direct.values()):
        for layer in (layer for layer in explained if layer >= path.head.layer):
            judged = judge(changed.up_to(layer) for changed in removed.values())
            losses = {row: judgement.loss for row, judgement in zip(removed, judged, strict=True)}
            if not enabling or _least(losses) > _least(enabling):
                guided, enabling = layer, losses
        least, least_free = (min(k.values(), key=lambda loss: loss.mean, default=None) for k in (direct, enabling))
        near = any(loss and loss.near(judge.threshold) for loss in (least, least_free))
        missed = least_free is not None and least_free.mean > judge.threshold
        needed = "undecided" if near else "enabling" if missed else "no"
        height = guided if needed == "enabling" else top

    redirected: dict[str, Circuit] = {}
    if needed != "no" and isinstance(circuit.heads[path.head], OneHot):
        for role in judge.examples.roles.before(path.source):
            if role != path.target:
                redirected[role] = circuit.redirected(path, role).up_to(height)
    led = {role: judged.loss for role, judged in zip(redirected, judge(redirected.values()), strict=True)}
    judge.measure([circuit.up_to(height)] if led else [])
    gains = {role: judge.difference(redirected[role], circuit.up_to(height)) for role in led}
    lowest = min((head.layer for head in circuit.useful_heads), default=None)
    return PathResult(
        path=path,
        losses=direct,
        enabling=enabling,
        enabled_layer=guided if enabling else None,
        redirected=led,
        rivals=tuple(role for role, loss in led.items() if loss.mean < judge.threshold),
        better=tuple(role for role, gain in gains.items() if gain.mean < -SURE * gain.standard_error),
        needed=needed,
        weak=needed == "directly" and _least(direct) < 2 * judge.threshold,
        in_first_useful_layer=path.head.layer == lowest,
    )


def _each_alone(judge: Judge, circuit: Circuit, progress: Callable[[float], None]) -> list[HeadResult]:
    """Step 3; a loss far from the threshold is decided on fewer examples."""
    results = []
    for head, hypothesis in circuit.heads.items():
        candidates = {**SIMPLE, hypothesis.name: hypothesis}
        judged = judge(Circuit({head: mechanism}) for mechanism in candidates.values())
        losses = {name: judgement.loss for name, judgement in zip(candidates, judged, strict=True)}
        sides = {name: judgement.side for name, judgement in zip(candidates, judged, strict=True)}
        simplest = next((name for name, side in sides.items() if side == "below"), None)
        outcome: Alone = "undetermined"
        if sides[hypothesis.name] == "below":
            outcome = "holds"
        elif sides[hypothesis.name] == "above" and simplest:
            outcome = "fails"
        results.append(HeadResult(head, hypothesis.name, losses, simplest, outcome))
        progress(len(results) / len(circuit.heads))
    return results


def _least(losses: Mapping[str, Loss]) -> float:
    return min(loss.mean for loss in losses.values())

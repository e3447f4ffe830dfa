"""Is this the circuit, all of the circuit, and nothing but the circuit? (paper, Appendix E)

Steps 1 and 2 are the hypothesis itself. Here the others are carried out, on fresh examples:

    unablated   the model solves its task
    step 3      each head alone can be replaced by its hypothesised mechanism
    step 4      every head of the model has one
    step 5      all of them together can
    step 6      no attention path can be taken away from that
    rivals      no attention path could lead elsewhere instead (ours: the paper does not ask)
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from circuits.attention import role_attention
from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.evaluation import evaluate
from circuits.judge import Judge
from circuits.loss import SURE, Loss
from circuits.mechanisms import SIMPLE, OneHot
from circuits.problem import Examples, Problem
from circuits.validation_report import Alone, HeadResult, Needed, PathResult, ValidationReport
from circuits.verdicts import verdicts

REPLACEMENTS = ("uniform", "identity")
ATTENTION_EXAMPLES = 256

Key = TypeVar("Key")


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
    for layer in range(model.cfg.n_layers):
        variants["up to", layer, ""] = circuit.up_to(layer)
    for path in circuit.paths:
        for instead in REPLACEMENTS:
            variants["path", path, instead] = circuit.without(path, instead)
    each = _evaluate(model, problem, examples, variants, lambda share: progress(0.4 * share))
    losses = {key: Loss.of(own, problem.parts) for key, own in each.items()}
    explained = [layer for layer in range(model.cfg.n_layers) if losses["up to", layer, ""].mean < threshold]
    direct = {path: {instead: losses["path", path, instead] for instead in REPLACEMENTS} for path in circuit.paths}

    freed: dict[tuple[Path, int, str], Circuit] = {}
    for path in circuit.paths:
        if not _exceeds(direct[path], threshold):
            for layer in explained:
                if path.head.layer <= layer < model.cfg.n_layers - 1:
                    for instead in REPLACEMENTS:
                        freed[path, layer, instead] = circuit.without(path, instead).up_to(layer)
    of_freed = _evaluate(model, problem, examples, freed, lambda share: progress(0.4 + 0.1 * share))
    enabling: dict[Path, tuple[int, dict[str, Loss]]] = {}
    for path, layer, _ in freed:
        found = {instead: Loss.of(of_freed[path, layer, instead], problem.parts) for instead in REPLACEMENTS}
        if path not in enabling or _least(found) > _least(enabling[path][1]):
            enabling[path] = layer, found

    needed: dict[Path, Needed] = {}
    elsewhere: dict[tuple[Path, str], Circuit] = {}
    for path in circuit.paths:
        layer, found = enabling.get(path, (model.cfg.n_layers - 1, {}))
        directly, by_others = _exceeds(direct[path], threshold), _exceeds(found, threshold)
        near = any(loss.near(threshold) for loss in direct[path].values())
        needed[path] = "directly" if directly else "enabling" if by_others else "undecided" if near else "no"
        if needed[path] != "no" and isinstance(circuit.heads[path.head], OneHot):
            for role in examples.roles.before(path.source):
                if role != path.target:
                    elsewhere[path, role] = circuit.redirected(path, role).up_to(layer)
    redirected = _evaluate(model, problem, examples, elsewhere, lambda share: progress(0.5 + 0.3 * share))

    heads = _each_alone(Judge(model, problem, examples, threshold), circuit, lambda share: progress(0.8 + 0.2 * share))
    first_useful = min((path.head.layer for path in circuit.paths), default=None)
    paths = []
    for path, how in needed.items():
        layer, found = enabling.get(path, (model.cfg.n_layers - 1, {}))
        own = {role: losses_of for (other, role), losses_of in redirected.items() if other == path}
        led = {role: Loss.of(losses_of, problem.parts) for role, losses_of in own.items()}
        rivals = tuple(role for role, loss in led.items() if loss.mean < threshold)
        gains = {role: Loss.of(own[role] - each["up to", layer, ""], problem.parts) for role in rivals}
        paths.append(
            PathResult(
                path=path,
                losses=direct[path],
                enabling=found,
                enabled_layer=layer if found else None,
                redirected=led,
                rivals=rivals,
                better=tuple(role for role, gain in gains.items() if gain.mean < -SURE * gain.standard_error),
                needed=how,
                weak=how == "directly" and _least(direct[path]) < 2 * threshold,
                in_first_useful_layer=path.head.layer == first_useful,
            )
        )
    everything = [Head(layer, index) for layer in range(model.cfg.n_layers) for index in range(model.cfg.n_heads)]
    unnamed = [head for head in everything if head not in circuit.heads]

    return ValidationReport(
        circuit=circuit,
        threshold=threshold,
        n_examples=n_examples,
        seed=seed,
        roles=problem.roles,
        full=losses["full", None, ""],
        combined=losses["combined", None, ""],
        up_to=tuple(losses["up to", layer, ""] for layer in range(model.cfg.n_layers)),
        heads=tuple(heads),
        paths=tuple(paths),
        verdicts=verdicts(losses["full", None, ""], losses["combined", None, ""], heads, paths, unnamed, threshold),
        attention=role_attention(model, examples.take(slice(0, ATTENTION_EXAMPLES))).cpu(),
        about=about or {},
    )


def _evaluate(
    model: HookedTransformer,
    problem: Problem,
    examples: Examples,
    variants: Mapping[Key, Circuit],
    progress: Callable[[float], None],
) -> dict[Key, Float[Tensor, "example part"]]:
    tensor = evaluate(model, problem, examples, list(variants.values()), progress)
    return dict(zip(variants, tensor, strict=True))


def _each_alone(judge: Judge, circuit: Circuit, progress: Callable[[float], None]) -> list[HeadResult]:
    """Step 3; a loss far from the threshold is decided on fewer examples."""
    results = []
    for head, hypothesis in circuit.heads.items():
        candidates = {**SIMPLE, hypothesis.name: hypothesis}
        judged = judge(Circuit({head: mechanism}) for mechanism in candidates.values())
        losses = {name: judgement.loss for name, judgement in zip(candidates, judged, strict=True)}
        low = [name for name, loss in losses.items() if loss.mean < judge.threshold]
        outcome: Alone = "holds" if hypothesis.name in low else "fails" if low else "undetermined"
        results.append(HeadResult(head, hypothesis.name, losses, low[0] if low else None, outcome))
        progress(len(results) / len(circuit.heads))
    return results


def _exceeds(losses: Mapping[str, Loss], threshold: float) -> bool:
    return bool(losses) and _least(losses) > threshold


def _least(losses: Mapping[str, Loss]) -> float:
    return min(loss.mean for loss in losses.values())

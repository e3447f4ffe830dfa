"""Is this the circuit, all of the circuit, and nothing but the circuit? (paper, Appendix E)

Steps 1 and 2 are the hypothesis itself. Here the others are carried out, on fresh examples:

    unablated   the model solves its task
    step 3      each head alone can be replaced by its hypothesised mechanism
    step 4      every head of the model has one
    step 5      all of them together can
    faithful    the heads with paths are enough, and
    complete    no others do their work (Wang et al. 2022; ``faithfulness.py``)
    step 6      no attention path can be taken away from that
    rivals      no attention path could lead elsewhere instead (ours: the paper does not ask)
    merges      no two heads could be one (the paper asks it of its transformer A, section 8.2)
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformer_lens import HookedTransformer

from circuits.attention import role_attention
from circuits.circuit import Circuit, Head, Path
from circuits.content import content_or_position
from circuits.errors import BadInput
from circuits.estimate import seconds
from circuits.faithfulness import faithfulness
from circuits.fixed_paths import with_fixed_paths
from circuits.judge import ENOUGH, Judge
from circuits.loss import SURE, Loss, strict_level
from circuits.measured import Ledger, Measured
from circuits.mechanisms import REPLACEMENTS, SIMPLE
from circuits.merging import MERGED_HEADS, merged
from circuits.one_hot import OneHot
from circuits.paper_protocol import paper_protocol
from circuits.problem import Problem
from circuits.sample import Sample, check_number, stream_seed
from circuits.soundness import soundness
from circuits.statements import Protocol
from circuits.validation_report import Alone, HeadResult, Merge, Needed, PathResult, ValidationReport
from circuits.verdicts import verdicts

ATTENTION_EXAMPLES, CONTENT_EXAMPLES = 256, ENOUGH
STREAM = "validation"  # of examples; discovery and averages draw from others


def validate(
    model: HookedTransformer,
    problem: Problem,
    circuit: Circuit,
    *,
    n_examples: int = 1024,
    seed: int = 0,
    threshold: float = 0.05,
    most: int = 0,
    protocol: Protocol = "extended",
    progress: Callable[[float], None] = lambda share: None,
    about: dict[str, Any] | None = None,
    measured: Measured | None = None,
    estimated: Callable[[float], None] | None = None,
) -> ValidationReport:
    """Hold a circuit against a model (paper, Appendix E, steps 3 to 6).

    Whatever the number of examples, layers, heads and paths, memory holds one block of examples (``sample.py``), what
    runs at once (``evaluation.py``), and four bytes for each loss: circuits times examples times parts.

    Args:
        model: any HookedTransformer without padding.
        problem: its task: examples with roles, and a loss.
        circuit: the hypothesis.
        n_examples: fresh examples, drawn with ``seed``.
        seed: the same seed gives the same report.
        threshold: a loss below it counts as low; the paper takes 0.05.
        most: where the combined loss, or what a removal costs, is too near to the threshold to say, four times as many
            examples are drawn, and again, up to so many; none more if it is not given.
        protocol: what the report's decision follows: every check (``extended``), or Appendix E to the
            letter (``paper``).
        progress: is told the finished share, 0 to 1.
        about: what else the report should say of the model.
        measured: what need not be measured again, such as what a validation left that was stopped; what is measured
            is added.
        estimated: is told before it begins how many seconds it and ``against_chance`` take together, about.

    Raises:
        BadInput: the circuit names no head or does not fit, or a number is out of range.
    """
    asked = (model, problem, circuit, seed, threshold, protocol, progress, about or {}, measured, estimated)
    try:
        report = _validated(n_examples, *asked)
        while report.chance_could_decide and n_examples < most:
            n_examples = min(4 * n_examples, most)
            report = _validated(n_examples, *asked)
    finally:
        if measured:
            measured.keep()
    return report


def _validated(
    n_examples: int,
    model: HookedTransformer,
    problem: Problem,
    circuit: Circuit,
    seed: int,
    threshold: float,
    protocol: Protocol,
    progress: Callable[[float], None],
    about: dict[str, Any],
    measured: Measured | None,
    estimated: Callable[[float], None] | None,
) -> ValidationReport:
    check_number(n_examples)
    if not circuit.heads:
        raise BadInput("the circuit names no head; there is nothing to validate")
    sample = Sample(problem, n_examples, stream_seed(seed, STREAM), next(model.parameters()).device)
    circuit.check(sample.roles, model.cfg.n_layers, model.cfg.n_heads)

    ledger = measured.of(model, problem, sample) if measured else Ledger()
    judge = Judge(model, problem, sample, threshold, ledger)
    if estimated is not None:
        estimated(seconds(model, problem, circuit, sample))
    removed = {path: {row: circuit.without(path, row) for row in REPLACEMENTS} for path in circuit.removable}
    full, combined = judge.measure([Circuit(), circuit], progress=lambda share: progress(0.3 * share))
    heads = _each_alone(judge, circuit)
    progress(0.5)
    level = strict_level(full, combined, threshold)
    strict = Judge(model, problem, sample, level, ledger)
    up_to = _losses(judge, (circuit.up_to(layer) for layer in range(model.cfg.n_layers)))
    free = {
        layer: strict if loss.mean < level else judge for layer, loss in enumerate(up_to[:-1]) if loss.mean < threshold
    }
    progress(0.6)
    paths = _each_path(strict, circuit, removed, free)
    merges = _each_merge(strict, circuit, paths) if combined.mean < threshold else []
    looks = content_or_position(
        model,
        problem,
        n_examples=min(n_examples, CONTENT_EXAMPLES),
        threshold=threshold,
        seed=seed,
        stream=f"{STREAM} of content",
        measured=measured,
        progress=lambda share: progress(0.7 + 0.1 * share),
    )
    faithful = faithfulness(judge, circuit, looks.means)
    paper = paper_protocol(judge, circuit)
    progress(1.0)
    report = ValidationReport(
        circuit=circuit,
        threshold=threshold,
        level=level,
        n_examples=n_examples,
        seed=seed,
        roles=problem.roles,
        full=full,
        combined=combined,
        up_to=tuple(up_to),
        heads=tuple(heads),
        paths=tuple(paths),
        merges=tuple(merges),
        verdicts=(),
        content=looks,
        faithfulness=faithful,
        paper=paper,
        protocol=protocol,
        attention=role_attention(model, sample.take(slice(0, ATTENTION_EXAMPLES))).cpu(),
        flow=soundness(circuit, problem),
        about=about,
    )
    return replace(report, verdicts=verdicts(report))


@dataclass(frozen=True)
class _Removal:
    """Step 6 for one path: what its removal costs, with all heads prescribed and with those above a layer free."""

    losses: dict[str, Loss]
    enabling: dict[str, Loss]
    enabled_layer: int | None
    needed: Needed

    @property
    def guides(self) -> int | None:
        """The layer above which the heads are left to be guided, for a path that does no more than guide them."""
        return self.enabled_layer if self.needed == "enabling" else None


def _each_path(
    judge: Judge, circuit: Circuit, removed: Mapping[Path, Mapping[str, Circuit]], free: Mapping[int, Judge]
) -> list[PathResult]:
    """Step 6 and the rivals; ``free`` are the layers above which all heads may be left untouched, with who judges."""
    without = [changed for rows in removed.values() for changed in rows.values()]
    judge.measure(without, ENOUGH)  # what a path is worth is reported, however early it is clear that it is needed
    judge(without)
    direct = {path: dict(zip(rows, _losses(judge, rows.values()), strict=True)) for path, rows in removed.items()}
    removals = {path: _Removal(losses, {}, None, "directly") for path, losses in direct.items()}
    doubtful = {
        path: {layer: own for layer, own in free.items() if layer >= path.head.layer}
        for path, losses in direct.items()
        if not all(loss.mean > judge.threshold and not loss.near(judge.threshold) for loss in losses.values())
    }
    for layer, own in free.items():
        own(row.up_to(layer) for path, layers in doubtful.items() if layer in layers for row in removed[path].values())
    removals |= {path: _doubtful(judge, removed[path], layers) for path, layers in doubtful.items()}
    for path in (path for path, removal in removals.items() if removal.needed == "no"):
        # Rare failures, each of a great loss, may not have come up in the few examples that decided it.
        rows, layers = removed[path].values(), doubtful[path]
        judge.measure(rows)
        for layer, own in layers.items():
            own.measure(row.up_to(layer) for row in rows)
        removals[path] = _doubtful(judge, removed[path], layers)
    # A path that only guides the heads above is held against its rivals with those heads free to be guided.
    bases = {
        path: circuit if removal.guides is None else circuit.up_to(removal.guides) for path, removal in removals.items()
    }
    rivals = {path: _redirected(judge, base, path) for path, base in bases.items() if removals[path].needed != "no"}
    judges = {path: judge if removal.guides is None else free[removal.guides] for path, removal in removals.items()}
    for own in {*judges.values()}:
        own(changed for path, redirected in rivals.items() if judges[path] is own for changed in redirected.values())
        own.measure(bases[path] for path, redirected in rivals.items() if judges[path] is own and redirected)
    lowest = min((head.layer for head in with_fixed_paths(circuit, judge.examples.roles).useful_heads), default=None)
    (combined,) = judge.measure([circuit])
    results = []
    for path, removal in removals.items():
        # Where the loss is not low with the path in place, a loss that is not low without it says nothing.
        needed: Needed = removal.needed if combined.mean < judge.threshold else "undecided"
        redirected = rivals.get(path, {})
        own = judges[path]
        led = dict(zip(redirected, _losses(own, redirected.values()), strict=True))
        gains = {role: own.difference(changed, bases[path]) for role, changed in redirected.items()}
        results.append(
            PathResult(
                path=path,
                losses=removal.losses,
                enabling=removal.enabling,
                enabled_layer=removal.enabled_layer,
                redirected=led,
                rivals=tuple(
                    role for role, loss in led.items() if loss.mean < own.threshold or loss.near(own.threshold)
                ),
                better=tuple(role for role, gain in gains.items() if gain.mean < -SURE * gain.standard_error),
                needed=needed,
                weak=needed == "directly" and _least(removal.losses) < 2 * judge.threshold,
                in_first_useful_layer=path.head.layer == lowest,
            )
        )
    return results


def _doubtful(judge: Judge, rows: Mapping[str, Circuit], layers: Mapping[int, Judge]) -> _Removal:
    """A path that the whole circuit may not miss, with the heads above each of ``layers`` left free.

    It can go if in one of these ways nothing is lost: neither with all heads prescribed nor with those above any layer
    free. That is what discovery asks before it takes a path away.
    """
    direct = dict(zip(rows, _losses(judge, rows.values()), strict=True))
    enabling, hardest, worst = {}, {}, {}
    for row, changed in rows.items():
        costs = {layer: (own([changed.up_to(layer)])[0].loss, own.threshold) for layer, own in layers.items()}
        if costs:
            hardest[row] = max(costs, key=lambda layer: costs[layer][0].mean / costs[layer][1])
            enabling[row] = costs[hardest[row]][0]
        worst[row] = max(((direct[row], judge.threshold), *costs.values()), key=lambda cost: cost[0].mean / cost[1])
    easiest = min(worst, key=lambda row: worst[row][0].mean / worst[row][1])
    loss, limit = worst[easiest]
    needed: Needed = "undecided" if loss.near(limit) else "enabling" if loss.mean > limit else "no"
    return _Removal(direct, enabling, hardest.get(easiest), needed)


def _redirected(judge: Judge, circuit: Circuit, path: Path) -> dict[str, Circuit]:
    """The circuit with this path led to every other role that it could reach."""
    if not isinstance(circuit.heads[path.head], OneHot):
        return {}
    others = [role for role in judge.examples.roles.before(path.source) if role != path.target]
    return {role: circuit.redirected(path, role) for role in others}


def _each_merge(judge: Judge, circuit: Circuit, paths: Sequence[PathResult]) -> list[Merge]:
    """Heads that the whole circuit needs, two at a time made one; of very many those that it would miss least."""
    costs: dict[Head, float] = {}
    for result in paths:
        if result.needed == "directly":
            costs[result.path.head] = max(costs.get(result.path.head, 0.0), _least(result.losses))
    needed = sorted(sorted(costs, key=costs.__getitem__)[:MERGED_HEADS])
    tried = list(merged(circuit, needed, judge.examples.roles))
    best: dict[tuple[Head, Head], Merge] = {}
    for (giver, taker, _), judgement in zip(tried, judge(changed for *_, changed in tried), strict=True):
        pair = giver, taker
        if pair not in best or judgement.loss.mean < best[pair].loss.mean:
            best[pair] = Merge(giver, taker, judgement.loss)
    return sorted(best.values(), key=lambda merge: merge.loss.mean)


def _each_alone(judge: Judge, circuit: Circuit) -> list[HeadResult]:
    """Step 3; a loss far from the threshold is decided on fewer examples."""
    tried = {head: {**SIMPLE, hypothesis.name: hypothesis} for head, hypothesis in circuit.heads.items()}
    judge(Circuit({head: mechanism}) for head, candidates in tried.items() for mechanism in candidates.values())
    results = []
    for head, hypothesis in circuit.heads.items():
        judged = judge(Circuit({head: mechanism}) for mechanism in tried[head].values())
        losses = {name: judgement.loss for name, judgement in zip(tried[head], judged, strict=True)}
        sides = {name: judgement.side for name, judgement in zip(tried[head], judged, strict=True)}
        simplest = next((name for name, side in sides.items() if side == "below"), None)
        outcome: Alone = "undetermined"
        if sides[hypothesis.name] == "below":
            outcome = "holds"
        elif sides[hypothesis.name] == "above" and simplest:
            outcome = "fails"
        results.append(HeadResult(head, hypothesis.name, losses, simplest, outcome))
    return results


def _losses(judge: Judge, circuits: Iterable[Circuit]) -> list[Loss]:
    return [judgement.loss for judgement in judge(circuits)]


def _least(losses: Mapping[str, Loss]) -> float:
    return min(loss.mean for loss in losses.values())

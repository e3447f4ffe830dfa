"""Step 6 of Appendix E: is every path needed? And could it lead to another role instead?

A path can be needed in two ways. It is needed directly if it carries part of the answer: without it the loss of the
whole circuit is high (the paper's step 6). It is needed indirectly if it only tells the heads above where to attend.
The whole circuit replaces the attention of these heads, so its loss stays low without the path. Such a path is tested
with the heads above some layer intact.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

from circuits.checks.experiment import MORE, NOTHING, Experiment, Lists, listed, verdict
from circuits.circuit import AttentionPath, Circuit
from circuits.flow.fixed_paths import paths_on_average, with_fixed_paths
from circuits.losses.loss import Loss
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.mechanisms.one_hot import OneHot
from circuits.results import Result, Verdict
from circuits.settings import current

Needed = Literal["directly", "indirectly", "undecided", "no"]
Removed = Mapping[str, Circuit]  # the circuit without one path, by what its row becomes
ByLayer = Mapping[int, SequentialTest]  # the test for the circuit with the heads above a layer intact


class PathResult(Result):
    """Step 6 for one path: the loss without it, by what its row becomes.

    A path can be needed directly or indirectly (see the module). The paper saw the second case in the first useful
    layer: the error stayed at 0.05 to 0.1, and the path was taken to "enable the information flow in the subsequent
    layers". Here it is tested for every path without which the loss of the whole circuit stays low.

    Attributes:
        path: the path.
        losses: the loss of the whole circuit with the path's row ``uniform`` and with the row ``identity``.
        indirect: the same losses with all heads above some layer intact, for the layer with the highest loss. Empty if
            both ``losses`` exceed the threshold, or if for no layer the loss is low with the path in place.
        intact_above: that layer, for the row whose highest loss is lower.
        retargeted: the loss with another role as the path's target, for every role before its source. It is the loss
            of the whole circuit, or for a path that is needed indirectly the loss with the heads above intact. Empty
            for a path that is not needed, and for a ``Previous`` head.
        alternative_targets: the roles in ``retargeted`` with a loss below the threshold, or too close to it to decide.
        better_targets: the roles in ``retargeted`` with a loss that is lower than the circuit's by more than three
            standard errors.
        needed: ``directly`` if both ``losses`` exceed the threshold; ``no`` if for one of the rows neither its loss nor
            its ``indirect`` loss does; ``indirectly`` otherwise; ``undecided`` if the deciding loss is within three
            standard errors of the threshold, or if the circuit's loss is not low with the path in place.
        weak: whether the path is needed directly, but a loss without it is below ``missed`` times the threshold.
        in_first_useful_layer: whether the path lies in the lowest layer with a path; paths of fixed patterns count.
    """

    path: AttentionPath
    losses: dict[str, Loss]
    indirect: dict[str, Loss]
    intact_above: int | None
    retargeted: dict[str, Loss]
    alternative_targets: tuple[str, ...]
    better_targets: tuple[str, ...]
    needed: Needed
    weak: bool
    in_first_useful_layer: bool


class _Removal(NamedTuple):
    """The losses without one path, with all heads replaced and with the heads above a layer intact."""

    losses: dict[str, Loss]
    indirect: dict[str, Loss]
    intact_above: int | None
    needed: Needed


def removals(experiment: Experiment) -> tuple[PathResult, ...]:
    """Run step 6 for every path, and look for alternative targets."""
    test, strict, circuit, up_to = experiment.test, experiment.strict, experiment.circuit, experiment.up_to
    removed = {path: {row: circuit.without(path, row) for row in REPLACEMENTS} for path in circuit.removable}
    intact = {
        layer: strict if loss.mean < strict.threshold else test
        for layer, loss in enumerate(up_to[:-1])
        if loss.mean < test.threshold
    }
    each = _each_removal(strict, removed, intact)
    # A path that is needed indirectly is compared with its alternative targets with the heads above intact.
    guides = {path: one.intact_above if one.needed == "indirectly" else None for path, one in each.items()}
    tests = {path: strict if layer is None else intact[layer] for path, layer in guides.items()}
    bases = {path: circuit if layer is None else circuit.up_to(layer) for path, layer in guides.items()}
    needed_paths = [path for path, removal in each.items() if removal.needed != "no"]
    retargeted = _each_target(tests, {path: bases[path] for path in needed_paths})
    explicit = with_fixed_paths(circuit, test.roles, paths_on_average)
    lowest = min((head.layer for head in explicit.heads_with_paths), default=None)
    low = experiment.combined.mean < strict.threshold
    results = []
    for path, removal in each.items():
        losses, better = retargeted.get(path, ({}, ()))
        limit = tests[path].threshold
        # If the loss is not low with the path in place, a high loss without it is no evidence.
        needed: Needed = removal.needed if low else "undecided"
        least = min(loss.mean for loss in removal.losses.values())
        results.append(
            PathResult(
                **removal._replace(needed=needed)._asdict(),
                path=path,
                retargeted=losses,
                alternative_targets=tuple(role for role, at in losses.items() if at.mean < limit or at.near(limit)),
                better_targets=better,
                weak=needed == "directly" and least < current().missed * strict.threshold,
                in_first_useful_layer=path.head.layer == lowest,
            )
        )
    return tuple(results)


def _each_removal(
    strict: SequentialTest, removed: Mapping[AttentionPath, Removed], intact: ByLayer
) -> dict[AttentionPath, _Removal]:
    """Remove every path; ``intact`` gives the layers above which the heads may be intact, each with its test."""
    ways = {(path, row): changed for path, rows in removed.items() for row, changed in rows.items()}
    # The report shows the loss without each path, so it is measured on enough examples even if the decision is early.
    decided = strict.test(ways, min_examples=current().enough)
    results, doubtful = {}, {}
    for path, rows in removed.items():
        if all(decided[path, row].decision == "above" for row in rows):
            results[path] = _Removal({row: decided[path, row].loss for row in rows}, {}, None, "directly")
        else:
            doubtful[path] = {layer: test for layer, test in intact.items() if layer >= path.head.layer}
    for layer, test in intact.items():  # circuits with the same intact layers run together
        paths = [path for path, layers in doubtful.items() if layer in layers]
        test.test({(path, row): one.up_to(layer) for path in paths for row, one in removed[path].items()})
    for path, layers in doubtful.items():
        results[path] = _doubtful(strict, removed[path], layers)
        if results[path].needed == "no":
            # A rare failure with a high loss may be missing in the few examples that decided it.
            strict.measure(removed[path].values())
            for layer, test in layers.items():
                test.measure(one.up_to(layer) for one in removed[path].values())
            results[path] = _doubtful(strict, removed[path], layers)
    return {path: results[path] for path in removed}


def _doubtful(strict: SequentialTest, removed: Removed, intact: ByLayer) -> _Removal:
    """Remove a path that is not needed directly, with all heads replaced and with the heads above each layer intact.

    The path is redundant if for one of its rows all these losses stay low. Discovery uses the same criterion before it
    removes a path.
    """
    losses = {row: decided.loss for row, decided in strict.test(removed).items()}
    indirect, hardest, worst = {}, {}, {}
    for row, changed in removed.items():
        costs = {layer: (test.test_one(changed.up_to(layer)).loss, test.threshold) for layer, test in intact.items()}
        if costs:
            hardest[row] = max(costs, key=lambda layer: costs[layer][0].mean / costs[layer][1])
            indirect[row] = costs[hardest[row]][0]
        worst[row] = max(((losses[row], strict.threshold), *costs.values()), key=lambda cost: cost[0].mean / cost[1])
    easiest = min(worst, key=lambda row: worst[row][0].mean / worst[row][1])
    loss, limit = worst[easiest]
    needed: Needed = "undecided" if loss.near(limit) else "indirectly" if loss.mean > limit else "no"
    return _Removal(losses, indirect, hardest.get(easiest), needed)


def _each_target(
    tests: Mapping[AttentionPath, SequentialTest], bases: Mapping[AttentionPath, Circuit]
) -> dict[AttentionPath, tuple[dict[str, Loss], tuple[str, ...]]]:
    """Return for every path the loss with each other role as its target, and the roles that are better targets."""
    ways: dict[SequentialTest, dict[tuple[AttentionPath, str], Circuit]] = {}
    for path, base in bases.items():
        if isinstance(base.heads[path.head], OneHot):
            roles = tests[path].roles.in_layer(path.head.layer)
            others = [role for role in roles.before(path.source) if role != path.target]
            ways.setdefault(tests[path], {}).update({(path, role): base.retargeted(path, role) for role in others})
    losses: dict[AttentionPath, dict[str, Loss]] = {path: {} for path in bases}
    better: dict[AttentionPath, tuple[str, ...]] = dict.fromkeys(bases, ())
    for test, changed in ways.items():
        for (path, role), decided in test.test(changed).items():
            losses[path][role] = decided.loss
        test.measure([bases[path] for path, _ in changed])
        for (path, role), one in changed.items():
            gain = test.difference(one, bases[path])
            better[path] += (role,) if gain.mean < -current().sure * gain.standard_error else ()
    return {path: (losses[path], better[path]) for path in bases}


def step_6(paths: Sequence[PathResult], combined: Loss, strict: float) -> Verdict:
    """Return whether every path is needed, against the strict threshold."""
    low = f"{strict:.3g}"
    if combined.mean >= strict:
        sentence = f"Not tested: with every path in place the loss is not below {low}."
        return Verdict(name="step 6", decision="fails", sentence=sentence)
    by_need = {how: [path.path for path in paths if path.needed == how] for how in get_args(Needed)}
    said = f"The loss exceeds {low} without any one of these paths: {listed(by_need['directly']) or 'none'}."
    said = said if paths else "The circuit has no path, so no path is redundant."
    if by_need["indirectly"]:
        said += f" Without these it does so only while the heads above are intact: {listed(by_need['indirectly'])}."
    if weak := [path.path for path in paths if path.weak]:
        said += f" It stays below {current().missed * strict:.3g} without {listed(weak)}."
    no = {"Not needed, as it stays low with the path's row made uniform or identity: ": by_need["no"]}
    return verdict("step 6", said, no, {f"{MORE} Undecided whether these are needed: ": by_need["undecided"]})


def alternative_targets(paths: Sequence[PathResult], combined: Loss, strict: float) -> Verdict:
    """Return whether no other target does as well, against the strict threshold."""
    low, tried = f"{strict:.3g}", sum(len(path.retargeted) for path in paths)
    better = [f"{path.path} ({role} {path.retargeted[role]})" for path in paths for role in path.better_targets]
    as_good = [f"{path.path} ({', '.join(path.alternative_targets)})" for path in paths if path.alternative_targets]
    undecided: Lists = {"Another target keeps the loss low, or close to it: ": as_good}
    if combined.mean >= strict:
        undecided = {"Not tested: the loss of the circuit is not below ": [low]}
    elif paths and not tried:
        undecided = {"Not tested: no other target is possible for ": [path.path for path in paths]}
    if better:
        undecided = NOTHING
    said = f"None of {tried} other targets keeps the loss low." if paths else "The circuit has no path."
    said = "" if better or any(undecided.values()) else said
    return verdict("alternative targets", said, {"Another target gives a lower loss: ": better}, undecided)

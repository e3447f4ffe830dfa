"""Step 6 of Appendix E: is every path needed? And could it lead to another role instead?

A path can be needed in two ways. It may carry what is answered: then the whole circuit fails without it, the paper's
step 6. Or it may only tell the heads above where to attend; the whole circuit, which replaces their attention, then
hardly misses it. Whether it does so is measured with the heads above some layer intact: they attend by themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from circuits.circuit import AttentionPath, Circuit
from circuits.flow.fixed_paths import with_fixed_paths
from circuits.losses.loss import SURE, Loss
from circuits.losses.sequential_test import ENOUGH, SequentialTest
from circuits.mechanisms.mechanism import REPLACEMENTS
from circuits.mechanisms.one_hot import OneHot

Needed = Literal["directly", "indirectly", "undecided", "no"]
Removed = Mapping[str, Circuit]  # the circuit without one path, by what its row becomes
ByLayer = Mapping[int, SequentialTest]  # the test for the circuit with the heads above a layer intact


@dataclass(frozen=True)
class PathResult:
    """Step 6 for one path: the loss without it, by what its row becomes.

    A path can be needed in two ways. It may carry what is answered: then the whole circuit fails without it
    (``losses``, the paper's step 6). Or it may only tell the heads above where to attend; the whole circuit, which
    replaces their attention, then hardly misses it. The paper saw this in the first useful layer, where the error
    stayed at 0.05 to 0.1, and took the path to "enable the information flow in the subsequent layers". Whether it
    does is measured for the paths that the whole circuit does not miss: ``indirect`` is the loss with the heads above
    some layer intact.

    Attributes:
        path: the path.
        losses: of the whole circuit, with this row ``uniform`` and with this row ``identity``.
        indirect: the same with all heads above some layer intact, that from which on they miss the row most; empty
            where ``losses`` exceed the threshold, or the heads above go astray even with the path in place.
        intact_above: that layer, for the row with which the path is missed least.
        retargeted: the loss with another role as the path's target, for every role that its source can see; of the
            whole circuit, or with the heads above intact where the path is needed by those. Empty for a path that is
            not needed, and for a ``Previous`` head.
        alternative_targets: the roles among those that keep the loss below the threshold, or too near to it to decide:
            the test does not tell them apart from the target.
        better_targets: those whose loss is lower than the circuit's by more than three standard errors.
        needed: ``directly`` if both ``losses`` exceed the threshold; ``no`` if with one of the rows neither its loss
            nor its ``indirect`` one does; ``indirectly`` otherwise; ``undecided`` if the loss that decides it is within
            three standard errors of the threshold, or if the circuit's is not low with the path in place.
        weak: whether it is needed directly, but one of ``losses`` stays below twice the threshold.
        in_first_useful_layer: whether it lies in the lowest layer that has a path, that of a fixed pattern too.
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

    @property
    def necessary(self) -> bool:
        """Whether nothing shows that the path is redundant."""
        return self.needed != "no"

    @property
    def nearest_alternative(self) -> tuple[str, Loss] | None:
        """The other target with the lowest loss, if any was tried."""
        return min(self.retargeted.items(), key=lambda item: item[1].mean, default=None)


@dataclass(frozen=True)
class _Removal:
    """What one path's removal costs, with all heads replaced and with those above a layer intact."""

    losses: dict[str, Loss]
    indirect: dict[str, Loss]
    intact_above: int | None
    needed: Needed

    @property
    def guides(self) -> int | None:
        """The layer above which heads miss the path, where they alone miss it."""
        return self.intact_above if self.needed == "indirectly" else None


def removals(
    test: SequentialTest, strict: SequentialTest, circuit: Circuit, combined: Loss, up_to: Sequence[Loss]
) -> tuple[PathResult, ...]:
    """Step 6 for every path, and its alternative targets.

    Args:
        test: against the threshold.
        strict: against the one for single paths.
        circuit: whose paths.
        combined: its loss.
        up_to: for every layer the loss with the heads up to it replaced and those above intact.
    """
    removed = {path: {row: circuit.without(path, row) for row in REPLACEMENTS} for path in circuit.removable}
    intact = {
        layer: strict if loss.mean < strict.threshold else test
        for layer, loss in enumerate(up_to[:-1])
        if loss.mean < test.threshold
    }
    found = _each_removal(strict, removed, intact)
    # A path that only guides the heads above is held against its alternatives with those heads intact.
    guides = {path: removal.guides for path, removal in found.items()}
    tests = {path: strict if layer is None else intact[layer] for path, layer in guides.items()}
    bases = {path: circuit if layer is None else circuit.up_to(layer) for path, layer in guides.items()}
    needed_paths = [path for path, removal in found.items() if removal.needed != "no"]
    retargeted = _each_target(tests, {path: bases[path] for path in needed_paths})
    lowest = min((head.layer for head in with_fixed_paths(circuit, test.examples.roles).useful_heads), default=None)
    low = combined.mean < strict.threshold
    results = []
    for path, removal in found.items():
        losses, better = retargeted.get(path, ({}, ()))
        limit = tests[path].threshold
        # Where the loss is not low with the path in place, a loss that is not low without it says nothing.
        needed: Needed = removal.needed if low else "undecided"
        least = min(loss.mean for loss in removal.losses.values())
        results.append(
            PathResult(
                path=path,
                losses=removal.losses,
                indirect=removal.indirect,
                intact_above=removal.intact_above,
                retargeted=losses,
                alternative_targets=tuple(role for role, own in losses.items() if own.mean < limit or own.near(limit)),
                better_targets=better,
                needed=needed,
                weak=needed == "directly" and least < 2 * strict.threshold,
                in_first_useful_layer=path.head.layer == lowest,
            )
        )
    return tuple(results)


def _each_removal(
    strict: SequentialTest, removed: Mapping[AttentionPath, Removed], intact: ByLayer
) -> dict[AttentionPath, _Removal]:
    """The removal of every path; the heads above any of the layers of ``intact`` may be left intact."""
    ways = {(path, row): own for path, rows in removed.items() for row, own in rows.items()}
    # What a path is worth is reported, however early it is clear that it is needed.
    decided = strict.test(ways, min_examples=ENOUGH)
    found, doubtful = {}, {}
    for path, rows in removed.items():
        if all(decided[path, row].decision == "above" for row in rows):
            found[path] = _Removal({row: decided[path, row].loss for row in rows}, {}, None, "directly")
        else:
            doubtful[path] = {layer: own for layer, own in intact.items() if layer >= path.head.layer}
    for layer, own in intact.items():  # those that are asked of one layer run together
        paths = [path for path, layers in doubtful.items() if layer in layers]
        own.test({(path, row): one.up_to(layer) for path in paths for row, one in removed[path].items()})
    for path, layers in doubtful.items():
        found[path] = _doubtful(strict, removed[path], layers)
        if found[path].needed == "no":
            # Rare failures, each of a great loss, may not have come up in the few examples that decided it.
            strict.measure(removed[path].values())
            for layer, own in layers.items():
                own.measure(one.up_to(layer) for one in removed[path].values())
            found[path] = _doubtful(strict, removed[path], layers)
    return {path: found[path] for path in removed}


def _doubtful(strict: SequentialTest, removed: Removed, intact: ByLayer) -> _Removal:
    """A path that the whole circuit may not miss, with the heads above each of some layers intact.

    It can go if in one of these ways nothing is lost: neither with all heads replaced nor with those above any layer
    intact. That is what discovery asks before it takes a path away.
    """
    losses = {row: decided.loss for row, decided in strict.test(removed).items()}
    indirect, hardest, worst = {}, {}, {}
    for row, changed in removed.items():
        costs = {layer: (own.test_one(changed.up_to(layer)).loss, own.threshold) for layer, own in intact.items()}
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
    """For every path the loss with each other role as its target, and which of those are surely better."""
    ways: dict[SequentialTest, dict[tuple[AttentionPath, str], Circuit]] = {}
    for path, base in bases.items():
        if isinstance(base.heads[path.head], OneHot):
            others = [role for role in tests[path].examples.roles.before(path.source) if role != path.target]
            ways.setdefault(tests[path], {}).update({(path, role): base.retargeted(path, role) for role in others})
    losses: dict[AttentionPath, dict[str, Loss]] = {path: {} for path in bases}
    better: dict[AttentionPath, tuple[str, ...]] = dict.fromkeys(bases, ())
    for own, changed in ways.items():
        for (path, role), decided in own.test(changed).items():
            losses[path][role] = decided.loss
        own.measure([bases[path] for path, _ in changed])
        for (path, role), one in changed.items():
            gain = own.difference(one, bases[path])
            better[path] += (role,) if gain.mean < -SURE * gain.standard_error else ()
    return {path: (losses[path], better[path]) for path in bases}

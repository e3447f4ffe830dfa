"""Minimality as in Wang et al. 2022 (section 4), for paths: does every path and every positional head matter?

Step 6 of the paper's Appendix E makes the row of one path uniform or identity, and asks whether the loss of the whole
circuit rises. A path can matter in two ways. It matters directly if it carries part of the answer: the loss rises with
all heads replaced. It matters indirectly if it only tells the heads above where to attend. The circuit replaces the
attention of these heads, so the loss rises only with the heads above some layer intact.

A positional head, which has a fixed pattern, is made idle instead, in the circuit, and among the circuit's intact heads
(its average output, or that on another example). A soft head and one that is named intact get their average pattern:
what that costs is their price. Of a model with many heads, positional heads are not tested one by one, and the others
only in the circuit, on ``enough`` examples.

Of what does neither, a path may back up another one: if another head has the same path, the effect is also measured
without that (the set K of Wang et al.).

What matters raises a loss by the least effect or more (``least``, settings.py), or above the threshold.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal, get_args

from circuits.checks.experiment import DECISIONS, Experiment, listed, verdict
from circuits.circuit import AttentionPath, Circuit, Head
from circuits.losses.loss import Compared, any_above
from circuits.losses.sequential_test import DecidedLoss
from circuits.mechanisms.mechanism import REPLACEMENTS, Idle, Intact, Mechanism, OutputAblation, Resample
from circuits.mechanisms.soft import Soft
from circuits.results import Result, Verdict
from circuits.settings import current

Needed = Literal["directly", "indirectly", "as a backup", "undecided", "no"]
Change = Callable[[Circuit], Circuit]
Part = tuple[Head, AttentionPath | None]
Way = tuple[Part, str]  # of removing a part


class Removal(Result):
    """A circuit without one path, or with one head simpler.

    Attributes:
        head: the head.
        path: the path; None if the head is made idle, or gets its average pattern.
        losses: the loss with all heads replaced, by what the path's row becomes (``uniform``, ``identity``), or
            ``idle``, or ``mean``; its excess is that over the circuit's loss.
        intact: if this is no clear effect, the loss with the highest excess with the heads above some layer intact, or
            with all of the circuit's heads intact; the excess is that over the same with the part in place.
        needed: ``directly`` if all ``losses`` show an effect; ``indirectly`` if each of them or its ``intact`` does;
            ``as a backup`` if it does without the same path of another head; ``no`` if for one way nothing does; else
            ``undecided``. It is ``undecided``, too, if the circuit's loss is not low with the part in place.
    """

    head: Head
    path: AttentionPath | None
    losses: dict[str, DecidedLoss]
    intact: dict[str, DecidedLoss]
    needed: Needed

    def __str__(self) -> str:
        made = "made idle" if "idle" in self.losses else "at its average pattern"
        return f"{self.head} ({made})" if self.path is None else str(self.path)


def minimality(experiment: Experiment) -> tuple[Removal, ...]:
    """Remove every path, and make every positional head idle, one at a time."""
    circuit = experiment.circuit
    ways: dict[Part, dict[str, Change]] = {
        (path.head, path): {row: partial(Circuit.without, path=path, instead=row) for row in REPLACEMENTS}
        for path in circuit.removable
        if not isinstance(circuit.heads[path.head], Soft)
    }
    for head, mechanism in circuit.heads.items():
        if isinstance(mechanism, Soft | Intact):
            ways[head, None] = {"mean": partial(_ablated, head=head, ablation=experiment.averages.patterns[head])}
        elif not (mechanism.paths or mechanism.where or isinstance(mechanism, OutputAblation) or experiment.many):
            ways[head, None] = {"idle": partial(_ablated, head=head, ablation=Idle())}
    each = {(part, way): change for part, changes in ways.items() for way, change in changes.items()}
    solved = experiment.combined.decision == "below"
    if experiment.many:
        made, few = {one: change(circuit) for one, change in each.items()}, current().enough
        priced = experiment.test.costs(made, circuit, min_examples=few, max_examples=few)
        for one in [one for one, cost in priced.items() if cost.decision == "below"]:  # heads above may need it
            priced[one] = replace(priced[one], decision="undecided")
        return tuple(_removal(part, [*changes], priced, {}, {}, solved) for part, changes in ways.items())
    directly = _effects(experiment, circuit, each, min_examples=current().enough)
    clear = [part for part, changes in ways.items() if all(directly[part, way].decision == "above" for way in changes)]
    rest = {one: change for one, change in each.items() if one[0] not in clear}

    levels = [circuit.up_to(layer) for layer, low in enumerate(experiment.up_to[:-1]) if low.decision != "above"]
    intact = _in_each(experiment, levels, rest)
    for ablation in (Idle(), Resample()) if experiment.has_others else (Idle(),):
        changed = {one: partial(_ablated, head=one[0][0], ablation=ablation) for one in rest if one[1] == "idle"}
        alone = _effects(experiment, Circuit(dict.fromkeys(experiment.outside, ablation)), changed)
        intact = {one: [*effects, *([alone[one]] if one in alone else [])] for one, effects in intact.items()}

    open_ = {one: change for one, change in rest.items() if solved and _shown(directly[one], intact[one]) != "above"}
    backups: dict[Way, list[DecidedLoss]] = {one: [] for one in open_}
    for twin in circuit.paths if open_ else ():
        same = {one: change for one, change in open_.items() if one[0][1] and _are_twins(one[0][1], twin)}
        without = [base.without(twin, "identity") for base in (circuit, *levels) if twin in base.paths]
        for one, effects in _in_each(experiment, without, same).items():
            backups[one] += effects
    return tuple(_removal(part, [*changes], directly, intact, backups, solved) for part, changes in ways.items())


def _ablated(circuit: Circuit, head: Head, ablation: Mechanism) -> Circuit:
    return circuit.with_head(head, ablation)


def _are_twins(path: AttentionPath, other: AttentionPath) -> bool:
    return path.head != other.head and (path.source, path.target) == (other.source, other.target)


def _in_each(
    experiment: Experiment, bases: Iterable[Circuit], changes: Mapping[Way, Change]
) -> dict[Way, list[DecidedLoss]]:
    """Return the effects of changes of several circuits; a path can be removed only where the circuit has it."""
    effects: dict[Way, list[DecidedLoss]] = {one: [] for one in changes}
    for base in bases if changes else ():
        there = {
            (part, way): one for (part, way), one in changes.items() if part[1] is None or part[1] in base.removable
        }
        for one, effect in _effects(experiment, base, there).items():
            effects[one].append(effect)
    return effects


def _effects(
    experiment: Experiment, base: Circuit, changes: Mapping[Way, Change], min_examples: int = 0
) -> dict[Way, DecidedLoss]:
    """Change a circuit in each way, and decide whether this has an effect; none is shown on all examples only.

    A loss that rises above the threshold is an effect, too.
    """
    test, changed = experiment.test, {one: change(base) for one, change in changes.items()}
    effects = test.costs(changed, base, min_examples=min_examples)
    none = {one: changed[one] for one, effect in effects.items() if effect.decision != "above"}
    effects |= test.costs(none, base, min_examples=experiment.n_examples)
    if test.test_one(base).decision == "below":
        over = {one: decided for one, decided in test.test(none).items() if decided.decision == "above"}
        effects |= {one: replace(effects[one], decision="above") for one in over}
    return effects


def _removal(
    part: Part,
    ways: list[str],
    directly: Mapping[Way, DecidedLoss],
    intact: Mapping[Way, list[DecidedLoss]],
    backups: Mapping[Way, list[DecidedLoss]],
    solved: bool,
) -> Removal:
    losses = {way: directly[part, way] for way in ways}
    highest = {way: max(intact.get((part, way), ()), key=_rank, default=None) for way in ways}
    alone = {_shown(loss, intact.get((part, way), ())) for way, loss in losses.items()}
    beside = {
        _shown(loss, [*intact.get((part, way), ()), *backups.get((part, way), ())]) for way, loss in losses.items()
    }
    needed: Needed = "undecided"
    if not solved:
        pass
    elif alone == {"above"}:
        needed = "directly" if all(loss.decision == "above" for loss in losses.values()) else "indirectly"
    elif beside == {"above"}:
        needed = "as a backup"
    elif "below" in beside:
        needed = "no"
    return Removal(
        head=part[0],
        path=part[1],
        losses=losses,
        intact={way: one for way, one in highest.items() if one is not None},
        needed=needed,
    )


def _shown(loss: DecidedLoss, others: Iterable[DecidedLoss]) -> Compared:
    """Return whether one of these losses shows an effect."""
    return any_above([loss.decision, *(one.decision for one in others)])


def _rank(one: DecidedLoss) -> tuple[bool, float]:
    return one.decision == "above", one.excess


def minimal(experiment: Experiment, parts: tuple[Removal, ...]) -> Verdict:
    """Return whether every path and positional head matters."""
    if experiment.combined.decision != "below":
        said = "Not tested: the circuit's loss is not clearly low with every path in place."
        return Verdict(name="minimal", decision=DECISIONS[experiment.combined.decision], sentence=said)
    by_need = {how: [str(one) for one in parts if one.needed == how] for how in get_args(Needed)}
    effect = f"by {current().least:.3g} of the range or more"
    changes = "changes" if experiment.test.two_sided else "rises"
    said = f"The loss {changes} {effect} without any one of these: {listed(by_need['directly']) or 'none'}."
    said = said if parts else "The circuit has no path and no positional head, so none is superfluous."
    if by_need["indirectly"]:
        said += f" Without these it does so with heads intact only: {listed(by_need['indirectly'])}."
    if by_need["as a backup"]:
        said += f" These matter once the same path of another head is gone: {listed(by_need['as a backup'])}."
    no = {f"The loss does not rise {effect} without ": by_need["no"]}
    return verdict("minimal", said, no, {f"{experiment.more} Undecided whether these matter: ": by_need["undecided"]})

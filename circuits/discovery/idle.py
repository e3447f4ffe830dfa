"""Idle heads: those whose outputs can be ablated, all at once (Wang et al. 2022; Chan et al. 2022).

A head that is idle may write its average output, or what it writes on another example: both ablations must leave the
loss low. Heads that a model does not need for a task drop out here, before anything else is asked of them.
"""

from collections.abc import Sequence

from circuits.circuit import Circuit, Head
from circuits.losses.sequential_test import DecidedLoss, SequentialTest
from circuits.mechanisms.mechanism import Idle, Mechanism, Resample
from circuits.settings import current
from circuits.utils.progress import Progress


def idle_heads(test: SequentialTest, heads: Sequence[Head], progress: Progress = lambda share: None) -> Circuit:
    """Return heads that can be idle at once, each of them with less than the least effect, as a circuit.

    Each head is idle alone first, on few examples. Then the cheapest are idle together, as many as the threshold of the
    test allows; then every other head is tried beside them, the cheapest first.
    """
    alone = test.test({head: _ablated(Idle(), [head]) for head in heads}, max_examples=current().glanced)
    cheap = sorted((head for head in heads if test.size(alone[head]) < current().least), key=lambda h: alone[h].excess)
    progress(0.3)
    idle = idle_at_once(test, cheap)
    rest = cheap[len(idle) + 1 :]
    for done, head in enumerate(rest):
        if can_be_idle(test, head, idle):
            idle.append(head)
        progress(0.3 + 0.7 * done / len(rest))
    return _ablated(Idle(), sorted(idle))


def idle_at_once(test: SequentialTest, heads: Sequence[Head]) -> list[Head]:
    """Return the first of some heads that can all be idle at once, as many as the test allows, by bisection."""
    least, most = 0, len(heads)
    while least < most:
        middle = (least + most + 1) // 2
        if all(one.decision == "below" for one in _tested(test, heads[:middle])):
            least = middle
        else:
            most = middle - 1
    return [*heads[:least]]


def can_be_idle(test: SequentialTest, head: Head, idle: Sequence[Head]) -> bool:
    """Return whether a head can be idle beside others, with little effect."""
    return all(one.decision == "below" for one in _tested(test, [*idle, head], idle))


def _tested(test: SequentialTest, heads: Sequence[Head], before: Sequence[Head] | None = None) -> list[DecidedLoss]:
    """Test the heads under both ablations, and what they cost more than others."""
    both = [Idle()] if test.examples.take(slice(0, 2)).counterfactual is None else [Idle(), Resample()]
    low = test.test({one: _ablated(one, heads) for one in both})
    if before is None or any(one.decision != "below" for one in low.values()):
        return [*low.values()]
    than = {one: _ablated(one, before) for one in both}
    cost = test.test({one: _ablated(one, heads) for one in both}, than=than, limit=current().kept * current().least)
    return [*low.values(), *cost.values()]


def _ablated(mechanism: Mechanism, heads: Sequence[Head]) -> Circuit:
    return Circuit(dict.fromkeys(heads, mechanism))

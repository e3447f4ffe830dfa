"""Idle heads: those whose output can be its average, all at once (mean ablation, Wang et al. 2022)."""

from circuits.circuit import Circuit, Head
from circuits.losses.sequential_test import SequentialTest
from circuits.mechanisms.mechanism import Idle
from circuits.settings import current


def idle_heads(test: SequentialTest, heads: tuple[Head, ...]) -> tuple[Head, ...]:
    """Return heads that can be idle at once with the loss clearly below the threshold of the test.

    Each head is idle alone first, on few examples. Then the cheapest are idle together, as many as the loss allows, by
    bisection; then every other head is tried beside them, the cheapest first.
    """
    few = current().few
    alone = dict(zip(heads, test.measure([_idle([head]) for head in heads], few), strict=True))
    order = sorted(heads, key=lambda head: alone[head].mean)
    least, most = 0, len(order)
    while least < most:
        middle = (least + most + 1) // 2
        if test.test_one(_idle(order[:middle])).decision == "below":
            least = middle
        else:
            most = middle - 1
    idle = order[:least]
    for head in order[least + 1 :]:
        if test.test_one(_idle([*idle, head])).decision == "below":
            idle.append(head)
    return tuple(sorted(idle))


def _idle(heads: list[Head]) -> Circuit:
    return Circuit(dict.fromkeys(heads, Idle()))

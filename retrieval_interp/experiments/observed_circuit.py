"""A circuit of all paths that have much attention at some checkpoint, for runs whose circuit is not known."""

from collections.abc import Mapping

from circuits.circuit import Circuit, Head
from circuits.mechanisms.mechanism import PREVIOUS, Mechanism, Previous
from circuits.mechanisms.one_hot import OneHot
from retrieval_interp.training.curves import EMERGED, Curve


def observed_circuit(attention: Mapping[str, Curve]) -> Circuit:
    """Return a circuit of the paths whose attention exceeds 0.5 at some checkpoint; no ablation tests it.

    Of several paths of a head from one role, only the one with the highest attention counts. A head that attends to the
    previous position is one path.

    Args:
        attention: the attention at every checkpoint, by the names of the paths, as in ``attention.csv``.
    """
    highest: dict[tuple[Head, str], tuple[float, str]] = {}
    for name, curve in attention.items():
        text, ends = name.split(" ", maxsplit=1)
        source, target = ends.split(" -> ")
        key, found = (Head.parse(text), source), (max(curve.values()), target)
        if found[0] > EMERGED:
            highest[key] = max(highest.get(key, found), found)
    heads: dict[Head, Mechanism] = {}
    for head in dict.fromkeys(head for head, _ in highest):
        rows = {source: target for (own, source), (_, target) in highest.items() if own == head}
        heads[head] = Previous() if PREVIOUS[0] in rows else OneHot(rows)
    return Circuit(heads)

"""The circuit whose paths are followed in a run: its own, or all paths that have much attention at some checkpoint."""

from collections.abc import Mapping
from pathlib import Path

from circuits.circuit import Circuit, Head
from circuits.circuit_file import load_circuit
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import PREVIOUS, Mechanism, Previous
from circuits.mechanisms.one_hot import OneHot
from retrieval_interp.models.model_dir import ATTENTION, CIRCUIT
from retrieval_interp.training.curves import EMERGED, Curve, read_attention


def circuit_to_follow(run: Path) -> Circuit:
    """Return the circuit in the folder of a run; without one, ``observed_circuit`` of its measured attention.

    Raises:
        BadInput: there is neither, or no path has an attention above 0.5, or a file is damaged.
    """
    if (run / CIRCUIT).exists():
        return load_circuit(run / CIRCUIT)
    if not (run / ATTENTION).exists():
        raise BadInput(f"{run}: has no {CIRCUIT} and no {ATTENTION}; name a circuit with --circuit")
    if not (circuit := observed_circuit(read_attention(run / ATTENTION))).paths:
        raise BadInput(f"{run / ATTENTION}: no path has an attention above {EMERGED:g} at any checkpoint")
    return circuit


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

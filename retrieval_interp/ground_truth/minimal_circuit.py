"""The shallowest circuit that solves the retrieval problem, and circuits without redundant paths.

The depth of the first is the exact bound (``theory/depth.py``).
"""

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.ground_truth import TokenTask, solves
from circuits.mechanisms.one_hot import OneHot
from retrieval_interp.ground_truth.chains import ChainTask


def minimal_circuit(n_steps: int) -> Circuit:
    """Return the shallowest circuit for D steps, with 1 + ceil(log2(D + 1)) layers of one head.

    The first layer joins the members of every pair. In every later layer each pair attends to the pair that begins
    where its own knowledge ends, so the number of steps that a pair knows doubles. The query does the same. After layer
    l (from 0) a pair knows 2^l steps, and the query knows 2^l - 1.
    """
    if n_steps < 1:
        raise BadInput(f"{n_steps} steps; expected at least 1")
    heads: dict[Head, OneHot] = {}
    layer, reach, asked = 0, 1, 0  # the number of steps that a pair knows, and that the query knows
    heads[Head(0, 0)] = OneHot({f"pair{k}.second": f"pair{k}.first" for k in range(1, n_steps + 1)})
    while asked < n_steps:
        layer += 1
        rows = {"query": f"pair{asked + 1}.second"}
        rows |= {f"pair{k}.second": f"pair{k + reach}.second" for k in range(1, n_steps + 1 - reach)}
        heads[Head(layer, 0)] = OneHot(rows)
        asked, reach = asked + reach, 2 * reach
    circuit = Circuit(heads, name=f"minimal, {n_steps} steps")
    return without_redundant_paths(circuit, ChainTask(n_steps))


def without_redundant_paths(circuit: Circuit, task: TokenTask) -> Circuit:
    """Remove redundant paths one after the other, highest layer first, until none is left."""
    for path in reversed(circuit.paths):
        smaller = without_path(circuit, path)
        if solves(smaller, task):
            return without_redundant_paths(smaller, task)
    return circuit


def without_path(circuit: Circuit, path: AttentionPath) -> Circuit:
    """Return the circuit without one path of a one-hot head, and without the head if it was the only path."""
    mechanism = circuit.heads[path.head]
    if isinstance(mechanism, OneHot) and len(mechanism.rows) > 1:
        return circuit.with_head(path.head, mechanism.without_row(path.source))
    return circuit.without_heads([path.head])

"""What a circuit predicts under each distribution shift, without the weights: which symbols survive, and why.

The rules were written before the first measurement (docs/protocol.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from circuits.circuit import Circuit
from circuits.flow.circuit_flow import circuit_flow
from circuits.mechanisms.one_hot import OneHot
from retrieval_interp.experiments.shifts import Shift, opposite
from retrieval_interp.tasks.retrieval import RetrievalTask

SAME_PLACES = "no path names the distribution of symbols, and every pair stands where it can stand in training"


@dataclass(frozen=True)
class Prediction:
    """What a circuit predicts under a shift.

    Attributes:
        survives: the symbols that should survive; all others should break.
        reason: why, in words.
    """

    survives: tuple[str, ...]
    reason: str


def predicted(circuit: Circuit, task: RetrievalTask, shift: Shift) -> Prediction:
    """Return what a circuit predicts under a shift.

    Args:
        circuit: the circuit.
        task: the task that the model was trained on.
        shift: the shift, one of ``shifts_of(task)``.
    """
    every = task.loss_components
    match shift.name:
        case "x1 shared":
            known = tuple(symbol for symbol in every if symbol == "x1")
            return Prediction(known, "x1 stands in two pairs 2, and nothing says which of them continues which chain")
        case "x1 is x0":
            return Prediction((), "the query shares x0 with pair 1 and with pair 2; by Assumption 1 they look alike")
        case "members swapped":
            return Prediction((), "paths lead to the second position of a pair, which now holds the symbol before")
        case "blocks reversed":
            return _by_flow(circuit, opposite(task))
        case "one chain fewer" | "one chain more":
            return _by_flow(circuit, task)
    return Prediction(every, SAME_PLACES)


def _by_flow(circuit: Circuit, task: RetrievalTask) -> Prediction:
    """Follow information along the paths that hold wherever pairs stand, and that the causal mask allows."""
    roles = task.layout.roles
    free = [
        path
        for path in circuit.paths
        if circuit.condition(path) is None
        and not (isinstance(circuit.heads[path.head], OneHot) and roles.index(path.target) > roles.index(path.source))
    ]
    known = circuit_flow(circuit, task.layout, only=free).known[-1]["query"]
    bound = len(circuit.paths) - len(free)
    return Prediction(
        tuple(symbol for symbol in task.loss_components if symbol in known),
        f"pairs stand elsewhere; {bound} of {len(circuit.paths)} paths hold on some slots only or are against the "
        "mask, and no fixed pattern follows the pairs; the other paths bring the rest to the query",
    )

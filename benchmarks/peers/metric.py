"""What all peers measure: the outputs of the right answers, from 1 (the model) to 0 (on the counterfactuals).

The counterfactual of an example is another example. The loss itself would not do for the peers that follow gradients:
at a loss of 0 they are 0.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.ground_truth.truth import GroundTruth
from benchmarks.peers.graph import Graph
from circuits import Examples
from retrieval_interp.ground_truth.chains import ChainProblem
from retrieval_interp.tasks.retrieval import RetrievalTask

Metric = Callable[[Float[Tensor, "batch pos d_out"]], Float[Tensor, ""]]


@dataclass(frozen=True)
class Measured:
    """A model's graph, and the metric on its outputs."""

    graph: Graph
    metric: Metric


def measured(truth: GroundTruth, n_examples: int, seed: int) -> Measured:
    """Return the graph of a model on fresh examples, and the metric; every example has the next as counterfactual."""
    examples = truth.problem.examples(n_examples, seed)
    other = examples.inputs.roll(1, dims=0)

    def right(outputs: Tensor) -> Tensor:
        answers, wanted = _answers(truth.problem, outputs, examples)
        return (answers * wanted).sum(dim=-1).mean()

    with torch.no_grad():
        low, high = right(truth.model(other)), right(truth.model(examples.inputs))
    return Measured(Graph(truth.model, examples.inputs, other), lambda outputs: (right(outputs) - low) / (high - low))


def _answers(problem: ChainProblem | RetrievalTask, outputs: Tensor, examples: Examples) -> tuple[Tensor, Tensor]:
    """Return the model's answers and the right ones, as vectors."""
    if isinstance(problem, ChainProblem):
        return problem.answers(outputs, examples)
    return problem.answers(outputs), examples.targets

"""Metrics of the answers to the retrieval problem, from continuous to discontinuous (docs/protocol.md).

Each metric has the level of a guess, which is an answer with the mean of all candidates, and the level of a perfect
answer. The *way* goes from one to the other, so that all metrics can be compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int

from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.tasks.retrieval import RetrievalTask

SQUARED, WEIGHT, NEAREST = "squared error", "weight", "nearest"
TOLERANCES = (0.5, 0.25, 0.1)  # root mean square errors, over the K numbers of an answer
WITHIN = {tolerance: f"within {tolerance:g}" for tolerance in TOLERANCES}
CHAIN = "chain"  # in the place of a symbol: all symbols of a chain


@dataclass(frozen=True)
class AnswerMetric:
    """A metric of the answers.

    Attributes:
        name: the name.
        continuous: whether it is a continuous function of the answer.
        perfect: the level of a perfect answer.
        guess: the level of a guess, for a task and a number of symbols that have to be right together.
    """

    name: str
    continuous: bool
    perfect: float
    guess: Callable[[RetrievalTask, int], float]

    def way(self, value: float, task: RetrievalTask, symbol: str) -> float:
        """Return the share of the way from a guess to a perfect answer; below 0 if a guess is better.

        Args:
            value: the value of the metric.
            task: the task.
            symbol: the symbol that is asked for, or ``CHAIN``.
        """
        guess = self.guess(task, len(task.loss_components) if symbol == CHAIN else 1)
        return (value - guess) / (self.perfect - guess)


def guessed_within(tolerance: float) -> Callable[[RetrievalTask, int], float]:
    """Return the chance of guesses that are right within a tolerance, for a task and a number of symbols.

    The error of a guess has K normal numbers of mean 0 and variance 1 - 1/N.
    """

    def chance(task: RetrievalTask, n_symbols: int) -> float:
        from scipy.stats import chi2

        of_one = chi2.cdf(task.n_dims * tolerance**2 / (1 - 1 / task.n_chains), task.n_dims)
        return float(of_one) ** n_symbols

    return chance


METRICS = {
    metric.name: metric
    for metric in (
        AnswerMetric(SQUARED, True, 0.0, lambda task, _: 1 - 1 / task.n_chains),
        AnswerMetric(WEIGHT, True, 1.0, lambda task, _: 0.0),
        AnswerMetric(NEAREST, False, 1.0, lambda task, _: 1 / task.n_chains),
        *(AnswerMetric(name, False, 1.0, guessed_within(tolerance)) for tolerance, name in WITHIN.items()),
    )
}


def answer_metrics(
    task: RetrievalTask, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
) -> dict[str, Float[torch.Tensor, "batch chain component"]]:
    """Return every metric for every answer, by name.

    Raises:
        BadInput: the outputs have the wrong width.
    """
    rows = torch.arange(len(examples), device=outputs.device)[:, None]
    slots = examples.roles.group("slot", "query")
    answers, wanted = task.answers(outputs)[rows, slots], examples.targets[rows, slots]
    errors = (answers - wanted).square().mean(dim=-1)
    inner = torch.einsum("bakd,bckd->bakc", answers, wanted)  # of the answer of chain a with the symbol of chain c
    right = inner.diagonal(dim1=1, dim2=3).transpose(1, 2)
    others = (inner.sum(dim=-1) - right) / (task.n_chains - 1)
    own = torch.arange(task.n_chains, device=outputs.device)[:, None]
    return {
        SQUARED: errors,
        WEIGHT: (right - others) / task.n_dims,
        NEAREST: (task.distances(outputs, examples).argmin(dim=-1) == own).float(),
        **{name: (errors <= tolerance**2).float() for tolerance, name in WITHIN.items()},
    }


def symbol_slots(task: RetrievalTask, examples: Examples) -> Int[torch.Tensor, "batch chain component"]:
    """Return the slot of the pair that holds each symbol asked for."""
    role = {variable.name: variable.role for variable in task.variables}
    return torch.stack([examples.roles.group("slot", role[name]) for name in task.loss_components], dim=-1)

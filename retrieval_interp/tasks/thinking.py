"""Retrieval in which every query has positions after it to think. Each asks one hop further than the one before it.

One example with N = 1 chain of D = 3 steps, A-B-C-D:

    position   0 1    2 3    4 5    6      7         8
    symbol     C D    B C    A B    A      -         -
    role       pair3  pair2  pair1  query  thought1  thought2
    asked                           B C D  C D       D

As in tasks/next_symbol.py, training also asks the next symbol at the second members of pairs. The thoughts are no part
of an example, because what they read is not known before the model has run (training/thinking_pass.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float

from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.tasks.next_symbol import NextSymbolTask
from retrieval_interp.tasks.retrieval import StepOrder  # noqa: F401  # annotates an inherited field of the dataclass

WORDS, THOUGHTS, PAUSES = "words", "thoughts", "pauses"  # what a position after the queries reads


@dataclass(frozen=True)
class ThinkingTask(NextSymbolTask):
    """A retrieval problem with thoughts after the queries; a ``circuits.Problem``.

    Attributes:
        n_thoughts: the number of thoughts after every query, at most D - 1.
    """

    n_thoughts: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check("n_thoughts", 0, self.n_steps - 1)

    @property
    def trained_components(self) -> tuple[str, ...]:
        """x1 ... xD at the queries, the next symbols at pairs, and x(s+1) ... xD after s thoughts."""
        thoughts = range(1, self.n_thoughts + 1)
        after = (f"x{k} after {s}" for s in thoughts for k in range(s + 1, self.n_steps + 1))
        return (*super().trained_components, *after)

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """Return the squared error of every symbol that training asks for.

        Args:
            outputs: the outputs at all positions of the examples, then one block of N positions for every thought.
            examples: the examples.
        """
        N, end = self.n_chains, self.n_positions
        losses = [super().training_losses(outputs[:, :end], examples)]
        for s in range(1, self.n_thoughts + 1):
            answers = self.answers(outputs[:, : end + s * N])[:, :, : self.n_steps - s]
            losses.append((answers - examples.targets[:, :, s:]).square().mean(dim=(1, 3)))
        return torch.cat(losses, dim=1)

"""Retrieval in which the pairs have a loss of their own: each second member is also asked for the next symbol.

Training asks x_{k+1} at the second member of pair k < D, in the first K numbers of the output there. With the last step
first, pair k + 1 stands before pair k, so the answer can be found. Evaluation asks the queries only.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float

from circuits.errors import BadInput
from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from retrieval_interp.tasks.task import Task


@dataclass(frozen=True)
class NextSymbolTask(RetrievalTask):
    """A retrieval problem whose pairs are trained on the next symbol of their chain; a ``circuits.Problem``."""

    @classmethod
    def of(cls, task: Task) -> NextSymbolTask:
        """Return a retrieval problem with losses at the pairs.

        Raises:
            BadInput: it is another task, or some symbol is not asked for, or pair k + 1 does not stand before pair k.
        """
        if not isinstance(task, RetrievalTask) or task.n_steps < 2 or len(task.loss_components) < task.n_steps:
            raise BadInput(f"{task}: expected a retrieval problem of D from 2 with the implicit curriculum")
        if task.step_order is not StepOrder.LAST_FIRST:
            raise BadInput(f"{task}: expected the last step first, so that pairs can know the next symbol")
        return cls(task.n_steps, task.n_chains, task.n_dims)

    @property
    def trained_components(self) -> tuple[str, ...]:
        """x1 ... xD at the queries, and the next symbol at pairs 1 ... D - 1."""
        return (*self.loss_components, *(f"x{k + 1} at pair{k}.second" for k in range(1, self.n_steps)))

    def training_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch trained"]:
        """Return the squared error of every symbol that training asks for."""
        example = torch.arange(len(examples), device=outputs.device)[:, None]
        asked = examples.roles["query"] - 2 * self.n_steps * self.n_chains
        symbols = examples.targets[example, asked]  # [batch, chain, step, dim]
        at_pairs = [
            (outputs[example, examples.roles[f"pair{k}.second"], : self.n_dims] - symbols[:, :, k]).square()
            for k in range(1, self.n_steps)
        ]
        pairs = torch.stack(at_pairs, dim=-1).mean(dim=(1, 2))
        return torch.cat([self.losses(outputs, examples), pairs], dim=1)

"""Distribution shifts: examples of the retrieval problem that differ from those of training in one way.

Each shift takes the random choices of a batch as in training and changes one thing. Roles stay where the task puts
them: after ``members swapped``, ``pair1.first`` is still the earlier of two positions, and holds x1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from jaxtyping import Float, Int

from circuits.errors import BadInput
from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.retrieval import RetrievalTask, StepOrder
from retrieval_interp.tasks.task import Task
from retrieval_interp.tasks.vectors import VectorBatch

Draws = tuple[RetrievalTask, VectorBatch]


@dataclass(frozen=True)
class ShiftedExamples:
    """Examples under a shift.

    Attributes:
        task: the task that laid them out.
        draws: their symbols and orders.
        examples: the examples.
        counted: the chains that are measured.
    """

    task: RetrievalTask
    draws: VectorBatch
    examples: Examples
    counted: slice

    def answers(
        self, outputs: Float[torch.Tensor, "batch pos d_out"]
    ) -> Float[torch.Tensor, "batch chain component dim"]:
        """Return the answers in a model's outputs, by chain."""
        asked = self.examples.roles["query"] - 2 * self.task.n_steps * self.task.n_chains
        return self.task.answers(outputs)[torch.arange(len(self.examples))[:, None], asked]

    @property
    def wanted(self) -> Float[torch.Tensor, "batch chain component dim"]:
        """The right answers, by chain."""
        return self.draws.symbols[:, :, [int(name.removeprefix("x")) for name in self.task.loss_components]]

    @property
    def slots(self) -> Int[torch.Tensor, "batch chain component"]:
        """The slot of the pair that holds each right answer."""
        roles = [variable.role for variable in self.task.variables if variable.name in self.task.loss_components]
        return torch.stack([self.examples.roles.group("slot", role) for role in roles], dim=-1)


@dataclass(frozen=True)
class Shift:
    """One change of the examples.

    Attributes:
        name: the name.
        what: the change in words.
        change: returns the task and the draws under the shift.
        until: the chain before which the measured chains end, as in a slice; None: all are measured.
        swapped: whether the members of every pair change places.
        least_steps: the least number of steps D with which the shift differs from training.
    """

    name: str
    what: str
    change: Callable[[RetrievalTask, int, int], Draws]
    until: int | None = None
    swapped: bool = False
    least_steps: int = 1

    def examples(self, task: RetrievalTask, n: int, seed: int) -> ShiftedExamples:
        """Return ``n`` examples under the shift, independent of every training set.

        Raises:
            BadInput: as ``check_shiftable``.
        """
        check_shiftable(task)
        own, draws = self.change(task, n, seed)
        examples = own.assemble(draws)
        if self.swapped:
            symbols, codes = examples.inputs.split(own.n_dims, dim=-1)
            pairs = 2 * own.n_steps * own.n_chains
            turned = symbols[:, :pairs].unflatten(1, (-1, 2)).flip(2).flatten(1, 2)
            symbols = torch.cat([turned, symbols[:, pairs:]], dim=1)
            examples = replace(examples, inputs=torch.cat([symbols, codes], dim=-1))
        return ShiftedExamples(own, draws, examples, slice(self.until))


def check_shiftable(task: Task, name: str = "") -> RetrievalTask:
    """Return the task if it can be shifted.

    Args:
        task: the task.
        name: the name of the model, for the message.

    Raises:
        BadInput: it is not the retrieval problem with two chains or more and with pairs in blocks.
    """
    if not isinstance(task, RetrievalTask) or task.step_order is StepOrder.ANY or task.n_chains < 2:
        expected = "expected a model of the retrieval problem with two chains or more and with pairs in blocks"
        raise BadInput(f"{name}: {expected}" if name else expected)
    return task


def drawn(task: RetrievalTask, n: int, seed: int) -> Draws:
    """Draw examples as in training."""
    return task, task.draw(n, RngStream.EVALUATION, seed)


def _symbols(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[RetrievalTask, int, int], Draws]:
    """Return a shift of the symbols, ``[example, chain, symbol, dim]``."""

    def changed(task: RetrievalTask, n: int, seed: int) -> Draws:
        _, draws = drawn(task, n, seed)
        return task, replace(draws, symbols=change(draws.symbols.clone()))

    return changed


def _uniform(symbols: torch.Tensor) -> torch.Tensor:
    """Return the symbols with every number uniform, with mean 0 and variance 1, in the order that they had."""
    return 3**0.5 * torch.erf(symbols / 2**0.5)


def _correlated(share: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a map to symbols with variance 1 in which every two of the K numbers have this correlation."""

    def mixed(symbols: torch.Tensor) -> torch.Tensor:
        covariance = torch.full((symbols.shape[-1],) * 2, share).fill_diagonal_(1.0)
        return symbols @ torch.linalg.cholesky(covariance).T

    return mixed


def _shared(index: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a map that gives the second chain a symbol of the first one."""

    def shared(symbols: torch.Tensor) -> torch.Tensor:
        symbols[:, 1, index] = symbols[:, 0, index]
        return symbols

    return shared


def _repeated(symbols: torch.Tensor) -> torch.Tensor:
    """Return the symbols with x1 replaced with x0."""
    symbols[:, :, 1] = symbols[:, :, 0]
    return symbols


def _emptied(symbols: torch.Tensor) -> torch.Tensor:
    symbols[:, -1] = 0.0
    return symbols


def _in_line(task: RetrievalTask, n: int, seed: int) -> Draws:
    _, draws = drawn(task, n, seed)
    return task, replace(draws, order=torch.arange(task.n_chains).expand_as(draws.order))


def opposite(task: RetrievalTask) -> RetrievalTask:
    """Return the same problem with its blocks in the opposite order."""
    first = task.step_order is StepOrder.FIRST_FIRST
    return replace(task, step_order=StepOrder.LAST_FIRST if first else StepOrder.FIRST_FIRST)


def _reversed(task: RetrievalTask, n: int, seed: int) -> Draws:
    return drawn(opposite(task), n, seed)


def _more_chains(more: int) -> Callable[[RetrievalTask, int, int], Draws]:
    return lambda task, n, seed: drawn(replace(task, n_chains=task.n_chains + more), n, seed)


SHIFTS = (
    Shift("training", "examples as in training", drawn),
    Shift("uniform", "each number is uniform, with the same mean and variance", _symbols(_uniform)),
    Shift("correlated 0.5", "the numbers of a symbol have a correlation of 0.5", _symbols(_correlated(0.5))),
    Shift("correlated 0.9", "the numbers of a symbol have a correlation of 0.9", _symbols(_correlated(0.9))),
    Shift("last symbol shared", "two chains share their last symbol; they count", _symbols(_shared(-1)), 2),
    Shift("x1 shared", "two chains share x1; they count", _symbols(_shared(1)), until=2, least_steps=2),
    Shift("x1 is x0", "in every chain x1 is x0 again", _symbols(_repeated), least_steps=2),
    Shift("chains in line", "the chains have the same order in every block", _in_line),
    Shift("one chain empty", "the symbols of one chain are 0; the others count", _symbols(_emptied), until=-1),
    Shift("members swapped", "the second member of every pair stands first", drawn, swapped=True),
    Shift("blocks reversed", "the blocks stand in the opposite order", _reversed, least_steps=2),
    Shift("one chain fewer", "one chain fewer: blocks begin at other positions", _more_chains(-1)),
    Shift("one chain more", "one chain more: blocks begin at other positions", _more_chains(1)),
)
"""All shifts; the first is none."""


def shifts_of(task: RetrievalTask) -> tuple[Shift, ...]:
    """Return the shifts that change something for a task.

    Raises:
        BadInput: as ``check_shiftable``.
    """
    check_shiftable(task)
    return tuple(shift for shift in SHIFTS if task.n_steps >= shift.least_steps)

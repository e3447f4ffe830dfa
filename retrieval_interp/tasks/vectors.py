"""What every task on sequences of vectors shares: its randomness, its draws, its positions, its loss.

Each input vector is a symbol, K numbers drawn from N(0, 1), followed by a rotary code of the position, K numbers.
Answers are read at the last positions of the sequence, and scored by their squared error.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from circuits.errors import BadInput
from circuits.problem import Examples
from circuits.utils.lazy import torch
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.task import RawBatch, Task

LARGEST_DRAW = 2**31  # numbers drawn at once, 8 GiB


@dataclass(frozen=True)
class VectorBatch(RawBatch):
    """What chance decides of each example, in the smallest form; each task says what it keeps where.

    Attributes:
        symbols: those of every chain.
        order: in which order things stand, block by block.
    """

    symbols: Float[torch.Tensor, "example chain symbol dim"]
    order: Integer[torch.Tensor, "example block slot"]


class VectorTask(Task):
    """A ``circuits.Problem`` on sequences of vectors; a frozen dataclass with at least these fields.

    Attributes:
        n_chains: N, the chains side by side in every example.
        n_dims: K, the numbers of a symbol, and of a position code; even.
    """

    loss_name = "mean squared error"

    n_chains: int
    n_dims: int

    def __post_init__(self) -> None:
        self.check("n_chains", 1, 255)
        self.check("n_dims", 2, 10_000)
        if self.n_dims % 2:
            raise BadInput(f"n_dims is {self.n_dims}; expected an even number (position codes are sine and cosine)")

    @property
    def d_input(self) -> int:
        """Width of an input vector, 2K."""
        return 2 * self.n_dims

    @property
    def d_output(self) -> int:
        """Width of the answer at one position: all parts, K numbers each."""
        return len(self.loss_components) * self.n_dims

    def examples(self, n: int, seed: int) -> Examples:
        """``n`` examples for evaluation; they never overlap a training set, whatever the seeds."""
        return self.assemble(self.draw(n, RngStream.EVALUATION, seed))

    @abstractmethod
    def draw(self, n: int, stream: RngStream, seed: int) -> VectorBatch:
        """Draw the symbols and the orders of ``n`` examples."""

    @abstractmethod
    def assemble(self, draws: VectorBatch) -> Examples:
        """Lay the drawn symbols out as sequences with targets and roles."""

    def position_codes(self) -> Float[torch.Tensor, "pos dim"]:
        """Rotary position codes: cos(p θ_i), sin(p θ_i) with θ_i = 10000^(-2i/K), ``[pos, K]``."""
        i = torch.arange(self.n_dims // 2)
        angle = torch.arange(self.n_positions)[:, None] * 10000.0 ** (-2 * i / self.n_dims)
        return torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)

    def inputs(self, symbols: Float[torch.Tensor, "example pos dim"]) -> Float[torch.Tensor, "example pos d_in"]:
        """The symbols of whole sequences, with their position codes."""
        codes = self.position_codes().to(symbols.device).expand(len(symbols), -1, -1)
        return torch.cat([symbols, codes], dim=-1)

    def answers(self, outputs: Float[torch.Tensor, "batch pos d_out"]) -> Float[torch.Tensor, "batch chain part dim"]:
        """What a model's outputs answer, in the form of the targets.

        Raises:
            BadInput: the outputs have another width.
        """
        self.check_width(outputs)
        return outputs[:, -self.n_chains :].unflatten(-1, (len(self.loss_components), self.n_dims))

    def check_width(self, outputs: Float[torch.Tensor, "batch pos d_out"]) -> None:
        """Refuse the outputs of a model for something else.

        Raises:
            BadInput: they have another width.
        """
        if outputs.shape[-1] != self.d_output:
            raise BadInput(f"the model answers with {outputs.shape[-1]} numbers; this task asks for {self.d_output}")

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Squared error of every answered symbol, averaged over the N queries and K numbers."""
        return (self.answers(outputs) - examples.targets).square().mean(dim=(1, 3))


def drawn_symbols(rng: np.random.Generator, n: int, *shape: int) -> Float[torch.Tensor, "example chain symbol dim"]:
    """``n`` times so many symbols.

    Raises:
        BadInput: no example is asked for, or more than fit into memory.
    """
    if n < 1:
        raise BadInput(f"{n} examples; expected at least 1")
    if n * int(np.prod(shape)) > LARGEST_DRAW:
        raise BadInput(f"{n} examples of this task do not fit into memory; expected fewer")
    return torch.from_numpy(rng.standard_normal((n, *shape), dtype=np.float32))


def shuffles(rng: np.random.Generator, n: int, blocks: int, size: int) -> Integer[torch.Tensor, "example block slot"]:
    """``n`` times so many blocks, each in an order of its own; in the smallest form."""
    smallest = np.uint8 if size <= 256 else np.int32
    order = rng.permuted(np.broadcast_to(np.arange(size, dtype=smallest), (n, blocks, size)), axis=-1)
    return torch.from_numpy(np.ascontiguousarray(order))

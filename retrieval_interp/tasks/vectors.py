"""VectorTask: the base class of all tasks on sequences of vectors.

Each input vector is a symbol (K numbers drawn from N(0, 1)), followed by a rotary code of the position (K numbers).
Answers are read at the last positions of the sequence. The loss is their mean squared error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Integer

from circuits.errors import BadInput
from circuits.task import Answer, Examples
from circuits.utils.lazy import torch
from retrieval_interp.tasks.task import RawBatch, TrainableTask

LARGEST_DRAW = 2**31  # the most numbers in one raw batch, 8 GiB


@dataclass(frozen=True)
class VectorBatch(RawBatch):
    """The random choices of a batch of examples. Each task documents its own layout.

    Attributes:
        symbols: the symbols of every chain.
        order: the order of the chains or facts in every block.
    """

    symbols: Float[torch.Tensor, "example chain symbol dim"]
    order: Integer[torch.Tensor, "example block slot"]


class VectorTask(TrainableTask):
    """A ``circuits.Task`` on sequences of vectors; a frozen dataclass with at least these fields.

    Attributes:
        n_chains: N, the number of chains in every example.
        n_dims: K, the number of dimensions of a symbol and of a position code; even.
    """

    loss_name = "mean squared error"
    unit = "squared error"

    n_chains: int
    n_dims: int

    def __post_init__(self) -> None:
        self.check("n_chains", 1, 255)
        self.check("n_dims", 2, 10_000)
        if self.n_dims % 2:
            raise BadInput(f"n_dims is {self.n_dims}; expected an even number (position codes are sine and cosine)")

    @property
    def d_input(self) -> int:
        """The width of an input vector, 2K."""
        return 2 * self.n_dims

    @property
    def d_output(self) -> int:
        """The width of the output at one position: K numbers for every loss component."""
        return len(self.loss_components) * self.n_dims

    def position_codes(self) -> Float[torch.Tensor, "pos dim"]:
        """Return rotary position codes: cos(p θ_i), sin(p θ_i) with θ_i = 10000^(-2i/K), ``[pos, K]``."""
        i = torch.arange(self.n_dims // 2)
        angle = torch.arange(self.n_positions)[:, None] * 10000.0 ** (-2 * i / self.n_dims)
        return torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)

    def inputs(self, symbols: Float[torch.Tensor, "example pos dim"]) -> Float[torch.Tensor, "example pos d_in"]:
        """Append the position codes to the symbols of whole sequences."""
        codes = self.position_codes().to(symbols.device).expand(len(symbols), -1, -1)
        return torch.cat([symbols, codes], dim=-1)

    def answers(self, outputs: Float[torch.Tensor, "batch pos d_out"]) -> Float[torch.Tensor, "batch chain part dim"]:
        """Return the answers in a model's outputs, in the shape of the targets.

        Raises:
            BadInput: the outputs have the wrong width.
        """
        if outputs.shape[-1] != self.d_output:
            raise BadInput(f"the outputs have {outputs.shape[-1]} numbers each; the task expects {self.d_output}")
        return outputs[:, -self.n_chains :].unflatten(-1, (len(self.loss_components), self.n_dims))

    def losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch component"]:
        """Return the squared error of every symbol asked for, averaged over the N queries and K dimensions."""
        return (self.answers(outputs) - examples.targets).square().mean(dim=(1, 3))

    def differences(
        self,
        outputs: Float[torch.Tensor, "batch pos d_out"],
        others: Float[torch.Tensor, "batch pos d_out"],
        examples: Examples,
    ) -> Float[torch.Tensor, "batch chain component"]:
        """Return the squared difference of two answers in every chain, averaged over the K dimensions."""
        return self.in_chains((self.answers(outputs) - self.answers(others)).square().mean(dim=3), examples)

    def instance_losses(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component"]:
        """Return the squared error of every symbol asked for in every chain, averaged over the K dimensions."""
        return self.in_chains((self.answers(outputs) - examples.targets).square().mean(dim=3), examples)

    def texts(self, examples: Examples) -> list[list[str]]:
        """Return a letter for every symbol: A, B, C, ... along the first chain, and on along the others."""
        return [[known[_bytes(symbol)] for symbol in row] for row, known in self._letters(examples)]

    def right(self, examples: Examples) -> list[list[str]]:
        """Return the letters of the symbols that every chain is asked for."""
        rows = zip(self._letters(examples), self.in_chains(examples.targets, examples), strict=True)
        return [[", ".join(known[_bytes(one)] for one in chain) for chain in row] for (_, known), row in rows]

    def said(self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples) -> list[list[list[Answer]]]:
        """Return the nearest symbol for every answer of every chain, and how far the answer is from it."""
        answers, targets = (self.in_chains(one, examples) for one in (self.answers(outputs), examples.targets))
        told = []
        for row, known, given, right in zip(*zip(*self._letters(examples), strict=True), answers, targets, strict=True):
            symbols = torch.stack([*{_bytes(symbol): symbol for symbol in row}.values()])
            error, nearest = (given[:, :, None] - symbols).square().mean(dim=3).min(dim=2)
            there = (symbols[nearest] == right).all(dim=2)
            letters = [[known[_bytes(symbols[one])] for one in chain] for chain in nearest]
            rows = zip(letters, error.tolist(), there.tolist(), strict=True)
            told.append([[*zip(*chain, strict=True)] for chain in rows])
        return told

    def _letters(self, examples: Examples) -> Iterator[tuple[torch.Tensor, dict[bytes, str]]]:
        """Yield the symbols of every example, and the letter of each."""
        for row, at in zip(examples.inputs[..., : self.n_dims], examples.roles.positions, strict=True):
            known: dict[bytes, str] = {}
            for place in (*at.T.flatten().tolist(), *range(len(row))):  # chain by chain
                known.setdefault(_bytes(row[place]), chr(65 + len(known) % 26) + str(len(known) // 26 or ""))
            yield row, known

    def in_chains(
        self, values: Float[torch.Tensor, "batch query component *dim"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component *dim"]:
        """Return a value for every query in the order of the chains, instead of that of the queries."""
        rows = torch.arange(len(examples), device=values.device)[:, None]
        return values[rows, examples.roles.group("slot", "query")]


def _bytes(symbol: Float[torch.Tensor, " dim"]) -> bytes:
    return bytes(symbol.cpu().numpy().tobytes())


def drawn_symbols(rng: np.random.Generator, n: int, *shape: int) -> Float[torch.Tensor, "example chain symbol dim"]:
    """Draw symbols from N(0, 1) for ``n`` examples of the given shape.

    Raises:
        BadInput: ``n`` is below 1, or the examples do not fit into memory.
    """
    if n < 1:
        raise BadInput(f"{n} examples; expected at least 1")
    if n * int(np.prod(shape)) > LARGEST_DRAW:
        raise BadInput(f"{n} examples of this task do not fit into memory; expected fewer")
    return torch.from_numpy(rng.standard_normal((n, *shape), dtype=np.float32))


def shuffles(rng: np.random.Generator, n: int, blocks: int, size: int) -> Integer[torch.Tensor, "example block slot"]:
    """Draw a random order for every block of ``n`` examples, in the smallest integer type."""
    smallest = np.uint8 if size <= 256 else np.int32
    order = rng.permuted(np.broadcast_to(np.arange(size, dtype=smallest), (n, blocks, size)), axis=-1)
    return torch.from_numpy(np.ascontiguousarray(order))

"""The minimal formulation of the retrieval problem (paper, sections 6 and 7).

One example with N = 2 chains of D = 2 steps; the chains are A-B-C and a-b-c, the last step stands first:

    position   0 1   2 3     4 5   6 7     8   9
    symbol     b c   B C     A B   a b     a   A
    role       pair2         pair1         query        (pairs: first, second)
    target                                 b,c B,C      (implicit curriculum; without it: c and C alone)

Within every block the chains stand in an order of their own. Each input vector is the symbol, K numbers
drawn from N(0, 1), followed by a rotary code of the position, K numbers.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from circuits.errors import BadInput
from circuits.flow import Layout, chain
from circuits.problem import Examples
from circuits.roles import Roles

LARGEST_DRAW = 2**31  # numbers drawn at once, 8 GiB


class StepOrder(StrEnum):
    """Which retrieval step's block stands first in the sequence."""

    LAST_FIRST = "last_first"
    FIRST_FIRST = "first_first"


class Stream(StrEnum):
    """Independent sources of randomness: what one draws never appears in another, whatever the seeds."""

    TRAINING = "training"
    EVALUATION = "evaluation"
    BATCH_ORDER = "batch order"

    def generator(self, *seeds: int) -> np.random.Generator:
        """A generator of its own for this stream and these seeds."""
        for seed in seeds:
            if not 0 <= seed < 2**63:
                raise BadInput(f"seed {seed} cannot be used; expected a whole number from 0 to 2^63 - 1")
        return np.random.default_rng([list(Stream).index(self), *seeds])


@dataclass(frozen=True)
class Draws:
    """What chance decides of each example, in the smallest form.

    Attributes:
        symbols: x0 ... xD of every chain.
        order: for every block, in sequence order and with the queries last, the chain in each slot.
    """

    symbols: Float[Tensor, "example chain symbol dim"]
    order: UInt8[Tensor, "example block chain"]

    def __len__(self) -> int:
        return self.symbols.shape[0]

    def take(self, index: Int[Tensor, " n"]) -> "Draws":
        """Some of the examples, in the order of ``index``."""
        return Draws(self.symbols[index], self.order[index])

    def to(self, device: torch.device | str) -> "Draws":
        """The same draws on another device."""
        return Draws(self.symbols.to(device), self.order.to(device))


@dataclass(frozen=True)
class RetrievalTask:
    """A retrieval problem with N chains of D steps over symbols of K numbers; a ``circuits.Problem``.

    Attributes:
        n_steps: D, the number of retrieval steps; 1 is the induction problem.
        n_chains: N, the chains side by side in every example.
        n_dims: K, the numbers of a symbol, and of a position code; even.
        implicit_curriculum: ask for x1 ... xD (IC) or for xD alone (non-IC).
        step_order: which block stands first.
    """

    n_steps: int
    n_chains: int = 4
    n_dims: int = 4
    implicit_curriculum: bool = True
    step_order: StepOrder = StepOrder.LAST_FIRST

    def __post_init__(self) -> None:
        for name, least, most in (("n_steps", 1, 10_000), ("n_chains", 1, 255), ("n_dims", 2, 10_000)):
            value = getattr(self, name)
            if not least <= value <= most:
                raise BadInput(f"{name} is {value}; expected {least} to {most}")
        if self.n_dims % 2:
            raise BadInput(f"n_dims is {self.n_dims}; expected an even number (position codes are sine and cosine)")

    @property
    def n_positions(self) -> int:
        """Length of a sequence, N(2D+1)."""
        return self.n_chains * (2 * self.n_steps + 1)

    @property
    def d_input(self) -> int:
        """Width of an input vector, 2K."""
        return 2 * self.n_dims

    @property
    def d_output(self) -> int:
        """Width of the answer at one query, DK with the implicit curriculum and K without."""
        return len(self.parts) * self.n_dims

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, then both members of pair 1 ... D: the paper's s_0 ... s_2D."""
        pairs = (f"pair{k}.{member}" for k in range(1, self.n_steps + 1) for member in ("first", "second"))
        return ("query", *pairs)

    @property
    def parts(self) -> tuple[str, ...]:
        """The symbols asked for, each with a partial loss of its own."""
        first = 1 if self.implicit_curriculum else self.n_steps
        return tuple(f"x{k}" for k in range(first, self.n_steps + 1))

    @property
    def layout(self) -> Layout:
        """What each role of one chain starts with, for information flow."""
        return chain(self.n_steps, self.step_order is StepOrder.LAST_FIRST)

    @property
    def readout(self) -> tuple[str, ...]:
        """The answers are read at the queries."""
        return ("query",)

    def examples(self, n: int, seed: int) -> Examples:
        """``n`` examples for evaluation; they never overlap a training set, whatever the seeds."""
        return self.assemble(self.draw(n, Stream.EVALUATION, seed))

    def training_set(self, size: int, seed: int) -> Draws:
        """A fixed training set; ``assemble`` makes batches of it."""
        return self.draw(size, Stream.TRAINING, seed)

    def draw(self, n: int, stream: Stream, seed: int) -> Draws:
        """Draw the symbols and the orders of ``n`` examples."""
        if n < 1:
            raise BadInput(f"{n} examples; expected at least 1")
        rng = stream.generator(seed)
        N, D, K = self.n_chains, self.n_steps, self.n_dims
        if n * N * (D + 1) * K > LARGEST_DRAW:
            raise BadInput(f"{n} examples of this task do not fit into memory; expected fewer")
        symbols = rng.standard_normal((n, N, D + 1, K), dtype=np.float32)
        order = rng.permuted(np.broadcast_to(np.arange(N, dtype=np.uint8), (n, D + 1, N)), axis=-1)
        return Draws(torch.from_numpy(symbols), torch.from_numpy(np.ascontiguousarray(order)))

    def assemble(self, draws: Draws) -> Examples:
        """Lay the drawn symbols out as sequences with targets and roles."""
        N, D = self.n_chains, self.n_steps
        symbols, order = draws.symbols, draws.order.long()
        n, device = len(draws), symbols.device
        example = torch.arange(n, device=device)[:, None, None]

        step = torch.arange(D, 0, -1, device=device)
        if self.step_order is StepOrder.FIRST_FIRST:
            step = step.flip(0)
        first = symbols[example, order[:, :D], step[:, None] - 1]  # [n, block, slot, K]
        second = symbols[example, order[:, :D], step[:, None]]
        pairs = rearrange([first, second], "member n block slot dim -> n (block slot member) dim")
        asked = symbols[example[..., 0], order[:, D]]  # [n, slot, D+1, K]
        codes = self.position_codes().to(device).expand(n, -1, -1)
        inputs = torch.cat([torch.cat([pairs, asked[:, :, 0]], dim=1), codes], dim=-1)
        targets = asked[:, :, 1:] if self.implicit_curriculum else asked[:, :, D:]

        slot = order.argsort(dim=-1)  # [n, block, chain]
        block_of_step = step.argsort()  # block in which step k stands, for k = 1 ... D
        first_position = 2 * (block_of_step[:, None] * N + slot[:, block_of_step])  # [n, step, chain]
        both = [first_position, first_position + 1]
        pair_positions = rearrange(both, "member n step chain -> n (step member) chain")
        query_positions = 2 * D * N + slot[:, D:]
        roles = Roles(self.roles, torch.cat([query_positions, pair_positions], dim=1))
        return Examples(inputs, targets, roles)

    def position_codes(self) -> Float[Tensor, "pos dim"]:
        """Rotary position codes: cos(p θ_i), sin(p θ_i) with θ_i = 10000^(-2i/K), ``[pos, K]``."""
        i = torch.arange(self.n_dims // 2)
        angle = torch.arange(self.n_positions)[:, None] * 10000.0 ** (-2 * i / self.n_dims)
        return torch.stack([angle.cos(), angle.sin()], dim=-1).flatten(1)

    def losses(self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples) -> Float[Tensor, "batch part"]:
        """Squared error of every answered symbol, averaged over the N queries and K numbers."""
        if outputs.shape[-1] != self.d_output:
            raise BadInput(f"the model answers with {outputs.shape[-1]} numbers; this task asks for {self.d_output}")
        answers = outputs[:, -self.n_chains :].unflatten(-1, (len(self.parts), self.n_dims))
        return (answers - examples.targets).square().mean(dim=(1, 3))

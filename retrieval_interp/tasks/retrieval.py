"""The minimal formulation of the retrieval problem (paper, sections 6 and 7).

One example with N = 2 chains of D = 2 steps, A-B-C and a-b-c, with the block of the last step first:

    position   0 1   2 3     4 5   6 7     8   9
    symbol     b c   B C     A B   a b     a   A
    role       pair2         pair1         query        (pairs: first, second)
    target                                 b,c B,C      (implicit curriculum; without it: only c and C)

The order of the chains is shuffled in every block separately.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from einops import rearrange
from jaxtyping import Float, Int

from circuits.errors import BadInput
from circuits.roles import Roles
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.high_level import Variable, chain_variables, exchange, squared_distances
from retrieval_interp.tasks.task import TrainableTask
from retrieval_interp.tasks.vectors import VectorBatch, VectorTask, drawn_symbols, shuffles
from retrieval_interp.theory.chain_layout import chain_layout


class StepOrder(StrEnum):
    """The order of the blocks: the last or the first step first."""

    LAST_FIRST = "last_first"
    FIRST_FIRST = "first_first"


@dataclass(frozen=True)
class RetrievalTask(VectorTask):
    """A retrieval problem with N chains of D steps; symbols are vectors of K dimensions. A ``circuits.Task``.

    A raw batch holds the symbols x0 ... xD of every chain, and the order of the chains in every block. The blocks are
    in the order of the sequence, with the queries last.

    Attributes:
        n_steps: D, the number of retrieval steps; 1 is the induction problem.
        n_chains: N, the number of chains in every example.
        n_dims: K, the number of dimensions of a symbol and of a position code; even.
        implicit_curriculum: whether to ask for x1 ... xD (IC) or for xD alone (non-IC).
        left_out: the index k of a symbol xk, k < D, that is not asked for; 0: all are asked for.
        step_order: the order of the blocks.
    """

    n_steps: int
    n_chains: int = 4
    n_dims: int = 4
    implicit_curriculum: bool = True
    step_order: StepOrder = StepOrder.LAST_FIRST
    left_out: int = 0

    def __post_init__(self) -> None:
        self.check("n_steps", 1, 10_000)
        self.check("left_out", 0, self.n_steps - 1)
        if self.left_out and not self.implicit_curriculum:
            only = f"without the implicit curriculum only x{self.n_steps} is asked for"
            raise BadInput(f"x{self.left_out} cannot be left out: {only}")
        super().__post_init__()

    @property
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""
        return (
            f"the retrieval problem with D = {self.n_steps}: {self.n_chains} chains of {self.n_steps + 1} symbols, "
            f"each symbol {self.n_dims} numbers, given as shuffled pairs; asked for {self.asked} of every chain"
        )

    @property
    def n_positions(self) -> int:
        """The length of a sequence, N(2D+1)."""
        return self.n_chains * (2 * self.n_steps + 1)

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, then both members of pair 1 ... D: the paper's s_0 ... s_2D."""
        pairs = (f"pair{k}.{member}" for k in range(1, self.n_steps + 1) for member in ("first", "second"))
        return ("query", *pairs)

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with its own partial loss."""
        return tuple(f"x{k}" for k in self._asked_steps)

    @property
    def asked(self) -> str:
        """The symbols asked for, in short: ``x1 ... x3``; the full list if one is left out."""
        return ", ".join(self.loss_components) if self.left_out else super().asked

    @property
    def _asked_steps(self) -> list[int]:
        first = 1 if self.implicit_curriculum else self.n_steps
        return [k for k in range(first, self.n_steps + 1) if k != self.left_out]

    @property
    def trained_positions(self) -> slice:
        """The queries, which stand last; all positions if a subclass has training losses of its own."""
        another = type(self).training_losses is not TrainableTask.training_losses
        return slice(None) if another else slice(-self.n_chains, None)

    @property
    def layout(self) -> Layout:
        """What each role of one chain knows at the start."""
        steps = range(1, self.n_steps + 1)
        return chain_layout(self.n_steps, steps if self.step_order is StepOrder.FIRST_FIRST else None)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The symbols x1 ... xD; the answers from there on depend on a symbol."""
        return chain_variables(self.n_steps, self.loss_components)

    def exchanged(
        self, examples: Examples, role: str, partner: Int[torch.Tensor, "batch chain"]
    ) -> Float[torch.Tensor, "batch pos d_in"]:
        """Return the inputs with the symbol of every chain at a role replaced with its partner's."""
        symbols, codes = examples.inputs.split(self.n_dims, dim=-1)
        return torch.cat([exchange(symbols, examples.roles[role], partner), codes], dim=-1)

    def distances(
        self, outputs: Float[torch.Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[torch.Tensor, "batch chain component candidate"]:
        """Return the squared distance of every answer from the right answers of all chains."""
        rows = torch.arange(len(examples), device=outputs.device)[:, None]
        slots = examples.roles.group("slot", "query")
        return squared_distances(self.answers(outputs)[rows, slots], examples.targets[rows, slots])

    def draw(self, n: int, stream: RngStream, seed: int) -> VectorBatch:
        """Draw the symbols and the orders of ``n`` examples."""
        rng, N, D = stream.generator(seed), self.n_chains, self.n_steps
        return VectorBatch(drawn_symbols(rng, n, N, D + 1, self.n_dims), shuffles(rng, n, D + 1, N))

    def shortened(self, n_steps: int) -> RetrievalTask:
        """Return the same task with fewer steps."""
        return replace(self, n_steps=n_steps)

    def first_steps(self, draws: VectorBatch, n_steps: int) -> VectorBatch:
        """Return the same raw batch for the task with fewer steps: only the first steps of every chain."""
        kept = slice(-n_steps - 1, None) if self.step_order is StepOrder.LAST_FIRST else [*range(n_steps), -1]
        return VectorBatch(draws.symbols[:, :, : n_steps + 1], draws.order[:, kept])

    def assemble(self, draws: VectorBatch) -> Examples:
        """Arrange the drawn symbols as sequences, with targets and roles."""
        N, D = self.n_chains, self.n_steps
        symbols, order = draws.symbols, draws.order.long()
        example = torch.arange(len(draws), device=symbols.device)[:, None, None]
        block = torch.arange(D, device=symbols.device)  # of every step, and the step of every block
        block = block if self.step_order is StepOrder.FIRST_FIRST else block.flip(0)
        both = [symbols[example, order[:, :D], block[:, None] + member] for member in (0, 1)]  # [n, block, slot, K]
        pairs = rearrange(both, "member n block slot dim -> n (block slot member) dim")
        asked = symbols[example[..., 0], order[:, D]]  # [n, slot, D+1, K]
        targets = asked[:, :, self._asked_steps]

        slots = order.argsort(dim=-1)  # [n, block, chain]
        of_query, of_step = slots[:, D:], slots[:, block]
        first = 2 * (N * block[:, None] + of_step)
        of_pair = rearrange([first, first + 1], "member n step chain -> n (step member) chain")
        at = torch.cat([2 * D * N + of_query, of_pair], dim=1)
        labels = torch.cat([of_query, of_step.repeat_interleave(2, dim=1)], dim=1)
        roles = Roles(self.roles, at, {"slot": labels})
        return Examples(self.inputs(torch.cat([pairs, asked[:, :, 0]], dim=1)), targets, roles)

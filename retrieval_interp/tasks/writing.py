"""Retrieval with a scratchpad: the model writes the intermediate symbols one by one and reads them again.

One example with N = 2 chains of D = 2 steps, A-B-C and a-b-c; the written symbols follow the queries:

    position   0 1   2 3     4 5   6 7     8   9     10  11
    symbol     b c   B C     A B   a b     a   A     b   B
    role       pair2         pair1         query     written1
    target                                 b   B     c   C

Models are trained on the symbols that should have been written. ``write`` lets a model read its own symbols instead.
Every answer is one hop away, however long the chain, so two layers are enough (``theory/writing.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from einops import rearrange
from jaxtyping import Float

from circuits.flow.layout import Layout
from circuits.losses.loss import Loss
from circuits.problem import Examples
from circuits.roles import Roles
from circuits.utils.lazy import torch
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.retrieval import RetrievalTask
from retrieval_interp.tasks.vectors import VectorBatch, VectorTask
from retrieval_interp.theory.chain_layout import chain_layout

AT_ONCE = 256  # examples per batch


@dataclass(frozen=True)
class WritingTask(VectorTask):
    """A retrieval problem in which every step is asked at its own position; a ``circuits.Problem``.

    Attributes:
        n_steps: D, the number of retrieval steps; the model writes D - 1 symbols of every chain.
        n_chains: N, the number of chains in every example.
        n_dims: K, the number of dimensions of a symbol and of a position code; even.
    """

    n_steps: int
    n_chains: int = 4
    n_dims: int = 4

    @property
    def asked_at_once(self) -> RetrievalTask:
        """The same problem without a scratchpad: all answers in one pass."""
        return RetrievalTask(self.n_steps, self.n_chains, self.n_dims)

    @property
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""
        return f"{self.asked_at_once.sentence}, one after the other, each written and read again"

    @property
    def n_positions(self) -> int:
        """The length of a sequence, 3ND."""
        return 3 * self.n_chains * self.n_steps

    @property
    def d_output(self) -> int:
        """The width of the output at one position: the next symbol, K numbers."""
        return self.n_dims

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, the members of the pairs, and the written symbols: ``written1`` holds x1."""
        return (*self.asked_at_once.roles, *(f"written{k}" for k in range(1, self.n_steps)))

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with its own partial loss."""
        return self.asked_at_once.loss_components

    @property
    def read_at(self) -> Mapping[str, str]:
        """x1 is read at the query; every later symbol is read where the one before it was written."""
        places = ("query", *(f"written{k}" for k in range(1, self.n_steps)))
        return dict(zip(self.loss_components, places, strict=True))

    @property
    def layout(self) -> Layout:
        """What each role of one chain knows at the start; every written symbol has its own place."""
        pairs = chain_layout(self.n_steps)
        written = {f"written{k}": frozenset({f"x{k}", f"w{k}"}) for k in range(1, self.n_steps)}
        return Layout({**pairs.start, **written}, pairs.places | {f"w{k}" for k in range(1, self.n_steps)})

    def __post_init__(self) -> None:
        _ = self.asked_at_once  # checks the fields

    def draw(self, n: int, stream: RngStream, seed: int) -> VectorBatch:
        """Draw the symbols and the orders of ``n`` examples."""
        return self.asked_at_once.draw(n, stream, seed)

    def assemble(self, draws: VectorBatch) -> Examples:
        """Arrange the drawn symbols as sequences, with targets and roles."""
        asked = self.asked_at_once.assemble(draws)
        written = rearrange(asked.targets[:, :, :-1], "n slot written dim -> n (written slot) dim")
        before = asked.roles.positions
        steps = self.n_chains * torch.arange(1, self.n_steps, device=before.device)
        places = asked.roles["query"][:, None] + steps[:, None]
        slots, asked_slots = asked.roles.groups["slot"], asked.roles.group("slot", "query")
        written_slots = asked_slots[:, None].expand_as(places)  # a written symbol has the slot of its query
        groups = {"slot": torch.cat([slots, written_slots], dim=1)}
        roles = Roles(self.roles, torch.cat([before, places], dim=1), groups)
        symbols = torch.cat([asked.inputs[..., : self.n_dims], written], dim=1)
        return Examples(self.inputs(symbols), asked.targets, roles)

    def answers(self, outputs: Float[torch.Tensor, "batch pos d_out"]) -> Float[torch.Tensor, "batch chain part dim"]:
        """Return the answers in a model's outputs, at the queries and at the written symbols."""
        self.check_width(outputs)
        last = outputs[:, -self.n_chains * self.n_steps :]
        return rearrange(last, "n (part slot) dim -> n slot part dim", slot=self.n_chains)


def write(
    model: Callable[[torch.Tensor], torch.Tensor], task: WritingTask, examples: Examples
) -> Float[torch.Tensor, "batch chain part dim"]:
    """Return the answers of a model that reads its own written symbols instead of the right ones.

    Args:
        model: a model trained on ``task``.
        task: the task.
        examples: examples of the task; their symbols after the queries are not used.
    """
    N, queries = task.n_chains, task.asked_at_once.n_positions
    inputs = examples.inputs.clone()
    inputs[:, queries:, : task.n_dims] = torch.nan  # a model that reads them outputs NaN
    answers = []
    with torch.no_grad():
        for end in range(queries, task.n_positions + N, N):
            answers.append(model(inputs[:, :end])[:, -N:])
            if end < task.n_positions:
                inputs[:, end : end + N, : task.n_dims] = answers[-1]

    return torch.stack(answers, dim=2)


def written_losses(
    model: Callable[[torch.Tensor], torch.Tensor],
    task: WritingTask,
    examples: Examples,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Loss, Loss]:
    """Return the losses of a model that reads the right symbols, and that reads its own written symbols.

    Args:
        model: a model trained on ``task``.
        task: the task.
        examples: examples of the task.
        progress: is called with the finished share, 0 to 1.
    """
    shown, own = [], []
    with torch.no_grad():
        for start in range(0, len(examples), AT_ONCE):
            batch = examples.take(slice(start, start + AT_ONCE))
            shown.append(task.losses(model(batch.inputs), batch))
            own.append((write(model, task, batch) - batch.targets).square().mean(dim=(1, 3)))
            progress(min(1.0, (start + AT_ONCE) / len(examples)))

    return Loss.of(torch.cat(shown), task.loss_components), Loss.of(torch.cat(own), task.loss_components)

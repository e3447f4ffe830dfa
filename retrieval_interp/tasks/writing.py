"""Retrieval by writing: the intermediate symbols are written one after the other, and read again.

One example with N = 2 chains of D = 2 steps, A-B-C and a-b-c; what was written stands in the sequence:

    position   0 1   2 3     4 5   6 7     8   9     10  11
    symbol     b c   B C     A B   a b     a   A     b   B
    role       pair2         pair1         query     written1
    target                                 b   B     c   C

Trained on what should have been written; ``write`` then lets a model read what it wrote itself. Every answer is one hop
away, however long the chain (``writing.py``: that takes two layers).
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

AT_ONCE = 256  # examples run together


@dataclass(frozen=True)
class WritingTask(VectorTask):
    """A retrieval problem whose every step is asked at a position of its own; a ``circuits.Problem``.

    Attributes:
        n_steps: D, the number of retrieval steps; D - 1 symbols of every chain are written.
        n_chains: N, the chains side by side in every example.
        n_dims: K, the numbers of a symbol, and of a position code; even.
    """

    n_steps: int
    n_chains: int = 4
    n_dims: int = 4

    @property
    def asked_at_once(self) -> RetrievalTask:
        """The same problem, to be answered in one pass."""
        return RetrievalTask(self.n_steps, self.n_chains, self.n_dims)

    @property
    def sentence(self) -> str:
        """What is asked, in words that follow on from "trained on"."""
        return f"{self.asked_at_once.sentence}, one after the other, each written down and read again"

    @property
    def n_positions(self) -> int:
        """Length of a sequence, N(3D)."""
        return 3 * self.n_chains * self.n_steps

    @property
    def d_output(self) -> int:
        """Width of the answer at one position: the next symbol, K numbers."""
        return self.n_dims

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, the members of the pairs, and what is written: ``written1`` holds x1."""
        return (*self.asked_at_once.roles, *(f"written{k}" for k in range(1, self.n_steps)))

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with a partial loss of its own."""
        return self.asked_at_once.loss_components

    @property
    def read_at(self) -> Mapping[str, str]:
        """x1 is read at the query, and each symbol after that where the one before it was written."""
        places = ("query", *(f"written{k}" for k in range(1, self.n_steps)))
        return dict(zip(self.loss_components, places, strict=True))

    @property
    def layout(self) -> Layout:
        """What each role of one chain starts with; what is written has a place of its own."""
        pairs = chain_layout(self.n_steps)
        written = {f"written{k}": frozenset({f"x{k}", f"w{k}"}) for k in range(1, self.n_steps)}
        return Layout({**pairs.start, **written}, pairs.places | {f"w{k}" for k in range(1, self.n_steps)})

    def __post_init__(self) -> None:
        _ = self.asked_at_once  # checks what the two have in common

    def draw(self, n: int, stream: RngStream, seed: int) -> VectorBatch:
        """Draw the symbols and the orders of ``n`` examples."""
        return self.asked_at_once.draw(n, stream, seed)

    def assemble(self, draws: VectorBatch) -> Examples:
        """Lay the drawn symbols out as sequences with targets and roles."""
        asked = self.asked_at_once.assemble(draws)
        written = rearrange(asked.targets[:, :, :-1], "n slot written dim -> n (written slot) dim")
        before = asked.roles.positions
        steps = self.n_chains * torch.arange(1, self.n_steps, device=before.device)
        places = asked.roles["query"][:, None] + steps[:, None]
        slots, asked_slots = asked.roles.groups["slot"], asked.roles.group("slot", "query")
        written_slots = asked_slots[:, None].expand_as(places)  # every symbol is written where its query stands
        groups = {"slot": torch.cat([slots, written_slots], dim=1)}
        roles = Roles(self.roles, torch.cat([before, places], dim=1), groups)
        symbols = torch.cat([asked.inputs[..., : self.n_dims], written], dim=1)
        return Examples(self.inputs(symbols), asked.targets, roles)

    def answers(self, outputs: Float[torch.Tensor, "batch pos d_out"]) -> Float[torch.Tensor, "batch chain part dim"]:
        """What a model's outputs answer, at the queries and where something is written."""
        self.check_width(outputs)
        last = outputs[:, -self.n_chains * self.n_steps :]
        return rearrange(last, "n (part slot) dim -> n slot part dim", slot=self.n_chains)


def write(
    model: Callable[[torch.Tensor], torch.Tensor], task: WritingTask, examples: Examples
) -> Float[torch.Tensor, "batch chain part dim"]:
    """What a model answers that reads what it wrote itself, instead of what it should have written.

    Args:
        model: trained on ``task``.
        task: the problem.
        examples: of the task; what they hold after the queries is not looked at.
    """
    N, queries = task.n_chains, task.asked_at_once.n_positions
    inputs = examples.inputs.clone()
    inputs[:, queries:, : task.n_dims] = torch.nan  # whatever looked at it would show
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
    """Losses of a model that reads what it should have written, and of the same one reading its own.

    Args:
        model: trained on ``task``.
        task: the problem.
        examples: of the task.
        progress: is told the finished share, 0 to 1.
    """
    shown, own = [], []
    with torch.no_grad():
        for start in range(0, len(examples), AT_ONCE):
            batch = examples.take(slice(start, start + AT_ONCE))
            shown.append(task.losses(model(batch.inputs), batch))
            own.append((write(model, task, batch) - batch.targets).square().mean(dim=(1, 3)))
            progress(min(1.0, (start + AT_ONCE) / len(examples)))

    return Loss.of(torch.cat(shown), task.loss_components), Loss.of(torch.cat(own), task.loss_components)

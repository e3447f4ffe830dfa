"""The retrieval problem over tokens, for transformers whose weights are constructed by hand.

    token       b1 c1  b2 c2   a2 b2  a1 b1   a1  a2
    role        pair2.first, .second          query       (chains 1 and 2, shuffled in every block; the last step first)

Symbol k of a chain comes from alphabet k, and no two chains of an example share a symbol. At the query a_i the model
answers with the one-hot vectors of b_i, c_i, and so on.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.errors import whole
from circuits.roles import Roles
from circuits.task import Examples, Layout
from retrieval_interp.tasks.high_level import Variable, chain_variables, exchange, squared_distances
from retrieval_interp.theory.chain_layout import chain_layout


@dataclass(frozen=True)
class ChainTask:
    """A retrieval problem with N chains of D steps; a ``circuits.Task`` over tokens.

    Attributes:
        n_steps: D, the number of retrieval steps.
        n_chains: N, the number of chains in every example.
        n_symbols: the size of every alphabet, at least ``n_chains``.
    """

    n_steps: int
    n_chains: int = 3
    n_symbols: int = 6

    def __post_init__(self) -> None:
        for name, least in (("n_steps", 1), ("n_chains", 1), ("n_symbols", self.n_chains)):
            object.__setattr__(self, name, whole(name, getattr(self, name), least))

    @property
    def n_positions(self) -> int:
        """The length of a sequence."""
        return self.n_chains * (2 * self.n_steps + 1)

    @property
    def n_tokens(self) -> int:
        """The number of tokens; token k * n_symbols + s is symbol s of alphabet k."""
        return (self.n_steps + 1) * self.n_symbols

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, then both members of pairs 1 ... D."""
        return ("query", *(f"pair{k}.{which}" for k in range(1, self.n_steps + 1) for which in ("first", "second")))

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for."""
        return tuple(f"x{k}" for k in range(1, self.n_steps + 1))

    @property
    def layout(self) -> Layout:
        """What each role of one chain knows at the start, for information flow."""
        return chain_layout(self.n_steps)

    @property
    def read_at(self) -> Mapping[str, str]:
        """The role at which each loss component is read."""
        return dict.fromkeys(self.loss_components, "query")

    @property
    def output_roles(self) -> tuple[str, ...]:
        """The role at which the answers are read, ``query``."""
        return ("query",)

    def tokens_of(self, piece: str) -> range:
        """Return the tokens of the alphabet of a symbol, x0 ... xD."""
        first = self.n_symbols * int(piece.removeprefix("x"))
        return range(first, first + self.n_symbols)

    def positions_of(self, role: str) -> range:
        """Return the possible positions of a role."""
        pair = (self.roles.index(role) + 1) // 2  # 0 for the query
        start = 2 * self.n_chains * (self.n_steps - pair)
        if pair == 0:
            return range(start, self.n_positions)
        return range(start + (role.endswith("second")), start + 2 * self.n_chains, 2)

    def examples(self, n: int, seed: int) -> Examples:
        """Return ``n`` examples; the same seed gives the same examples."""
        n, seed = whole("the number of examples", n, 1), whole("the seed", seed, 0, 2**63 - 1)
        generator = torch.Generator().manual_seed(seed)

        def shuffled(most: int, rows: int) -> Tensor:
            """Return a permutation of ``range(most)`` for every example and row, ``[n, rows, most]``."""
            return torch.rand(n, rows, most, generator=generator).argsort(dim=-1)

        symbols = shuffled(self.n_symbols, self.n_steps + 1)[..., : self.n_chains]  # [n, step, chain]
        tokens = symbols + self.n_symbols * torch.arange(self.n_steps + 1)[:, None]
        slot = shuffled(self.n_chains, self.n_steps + 1)  # the chain's place in block 0 (queries) ... D
        positions = torch.stack(
            [torch.tensor(self.positions_of(role))[slot[:, (i + 1) // 2]] for i, role in enumerate(self.roles)], dim=1
        )
        slots = torch.stack([slot[:, (i + 1) // 2] for i in range(len(self.roles))], dim=1)
        inputs = torch.empty(n, self.n_positions, dtype=torch.long)
        for i in range(len(self.roles)):
            inputs.scatter_(1, positions[:, i], tokens[:, i // 2])
        return Examples(inputs, tokens[:, 1:], Roles(self.roles, positions, {"slot": slots}))

    def losses(self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples) -> Float[Tensor, "batch component"]:
        """Return the squared error of every one-hot answer; an answer of all zeros scores 1."""
        return self.instance_losses(outputs, examples).mean(dim=1)

    def instance_losses(
        self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[Tensor, "batch chain component"]:
        """Return the squared error of every one-hot answer of every chain."""
        answers, wanted = self.answers(outputs, examples)
        return (answers - wanted).square().sum(dim=-1)

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The symbols x1 ... xD; the answers from there on depend on a symbol."""
        return chain_variables(self.n_steps, self.loss_components)

    def exchanged(self, examples: Examples, role: str, partner: Int[Tensor, "batch chain"]) -> Int[Tensor, "batch pos"]:
        """Return the inputs with the symbol of every chain at a role replaced with its partner's."""
        return exchange(examples.inputs, examples.roles[role], partner)

    def distances(
        self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples
    ) -> Float[Tensor, "batch chain component candidate"]:
        """Return the squared distance of every answer from the one-hot answers of all chains."""
        return squared_distances(*self.answers(outputs, examples))

    def answers(
        self, outputs: Float[Tensor, "batch pos d_out"], examples: Examples
    ) -> tuple[Float[Tensor, "batch chain component symbol"], Int[Tensor, "batch chain component symbol"]]:
        """Return the model's answers and the right ones, both as vectors."""
        rows = torch.arange(len(examples), device=outputs.device)[:, None]
        answers = outputs[rows, examples.roles["query"]].unflatten(-1, (self.n_steps, self.n_symbols))
        return answers, torch.nn.functional.one_hot(examples.targets % self.n_symbols, self.n_symbols).transpose(1, 2)

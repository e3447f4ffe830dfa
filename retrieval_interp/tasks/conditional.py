"""The minimal formulation of the conditional retrieval problem (paper, section 3.1).

The last step depends on two values: in ``x y z ... a y ... a x ... a`` the answer z follows from x and y. Every x
occurs with every y, so neither value alone determines z. One example with N = 2 chains, (a: x, y, z) and (A: X, Y, Z):

    position   0 1 2   3 4 5   6 7 8   9 10 11   12 13  14 15   16 17  18 19   20 21
    symbol     X y .   x y z   X Y Z   x  Y  .    A  Y   a  y    a  x   A  X    A  a
    role               z                            y               x           query   (members: first, second, third)
    target                                                                      X,Y,Z x,y,z

The symbols shown as dots are never asked for. Every block is shuffled separately.
"""

from __future__ import annotations

from dataclasses import dataclass

from einops import rearrange

from circuits.roles import Roles
from circuits.task import Examples, Layout
from circuits.utils.lazy import torch
from retrieval_interp.rng import RngStream
from retrieval_interp.tasks.vectors import VectorBatch, VectorTask, drawn_symbols, shuffles
from retrieval_interp.theory.facts import Fact, Facts, role

MEMBERS = {"x": ("first", "second"), "y": ("first", "second"), "z": ("first", "second", "third")}
A, X, Y, Z = range(4)  # indices of a chain's symbols in the raw batch


@dataclass(frozen=True)
class ConditionalTask(VectorTask):
    """A conditional retrieval problem with N chains over symbols of K numbers; a ``circuits.Task``.

    The symbols of a raw batch are, for every chain, a, x, y, and the value of its x with the y of each chain. The order
    of a raw batch is N rows with the numbers of the two-premise facts, (chain of x) N + (chain of y), then one row with
    the order of the chains for each of the three blocks that follow.

    Attributes:
        n_chains: N, the number of chains in every example.
        n_dims: K, the number of dimensions of a symbol and of a position code; even.
    """

    n_chains: int = 4
    n_dims: int = 4

    def __post_init__(self) -> None:
        self.check("n_chains", 1, 100)
        super().__post_init__()

    @property
    def sentence(self) -> str:
        """The task in words, to follow "trained on"."""
        return (
            f"the conditional retrieval problem: {self.n_chains} chains a, x, y, z of symbols of "
            f"{self.n_dims} numbers, where x and y must be found to find z; asked for x, y and z of every chain"
        )

    @property
    def n_positions(self) -> int:
        """The length of a sequence, 3N² + 5N."""
        return self.n_chains * (3 * self.n_chains + 5)

    @property
    def roles(self) -> tuple[str, ...]:
        """``query``, then the members of the facts that give z, y and x."""
        return ("query", *(f"{fact}.{member}" for fact, members in MEMBERS.items() for member in members))

    @property
    def loss_components(self) -> tuple[str, ...]:
        """The symbols asked for, each with its own partial loss: the implicit curriculum."""
        return ("x", "y", "z")

    @property
    def facts(self) -> Facts:
        """The question of one chain and the facts of two chains, for information flow."""
        forms = {
            "z": tuple(Fact((x, y), "z" if x + y == "xy" else f"{x}{y}") for x in "xX" for y in "yY"),
            "y": (Fact(("a",), "y"), Fact(("A",), "Y")),
            "x": (Fact(("a",), "x"), Fact(("A",), "X")),
        }
        return Facts(("a",), forms, "z")

    @property
    def layout(self) -> Layout:
        """What each role of one chain knows at the start, and the roles that could be confused with it."""
        names = {role("query", "a"): "query"}
        for form, facts in self.facts.forms.items():
            for member, token in zip(MEMBERS[form], facts[0].tokens, strict=True):
                names[role(facts[0], token)] = f"{form}.{member}"
        return self.facts.layout.renamed(names)

    def draw(self, n: int, stream: RngStream, seed: int) -> VectorBatch:
        """Draw the symbols and the orders of ``n`` examples."""
        rng, N = stream.generator(seed), self.n_chains
        symbols = drawn_symbols(rng, n, N, Z + N, self.n_dims)
        both = rearrange(shuffles(rng, n, 1, N * N), "n 1 (row slot) -> n row slot", slot=N)
        return VectorBatch(symbols, torch.cat([both, shuffles(rng, n, 3, N).to(both.dtype)], dim=1))

    def assemble(self, draws: VectorBatch) -> Examples:
        """Arrange the drawn symbols as sequences, with targets and roles."""
        N, symbols, order = self.n_chains, draws.symbols, draws.order.long()
        device = symbols.device
        example = torch.arange(len(draws), device=device)[:, None]
        both, (with_y, with_x, asked) = order[:, :N].flatten(1), order[:, N:].unbind(dim=1)
        of_x, of_y = both // N, both % N

        def laid(*columns: torch.Tensor) -> torch.Tensor:
            return rearrange([*columns], "member n slot dim -> n (slot member) dim")

        sequence = [
            laid(symbols[example, of_x, X], symbols[example, of_y, Y], symbols[example, of_x, Z + of_y]),
            laid(symbols[example, with_y, A], symbols[example, with_y, Y]),
            laid(symbols[example, with_x, A], symbols[example, with_x, X]),
            symbols[example, asked, A],
        ]
        targets = torch.stack([symbols[example, asked, part] for part in (X, Y, Z + asked)], dim=2)

        of_chain = torch.arange(N, device=device) * (N + 1)  # the number of the fact that joins its x and its own y
        slot = {"z": both.argsort(dim=-1)[:, of_chain]}
        slot |= {"y": with_y.argsort(dim=-1), "x": with_x.argsort(dim=-1), "query": asked.argsort(dim=-1)}
        first = {"z": 3 * slot["z"], "y": 3 * N * N + 2 * slot["y"], "x": (3 * N + 2) * N + 2 * slot["x"]}
        first["query"] = (3 * N + 4) * N + slot["query"]
        members = [(name, place) for name, names in MEMBERS.items() for place in range(len(names))]
        at = torch.stack([first["query"], *(first[name] + place for name, place in members)], dim=1)
        slots = torch.stack([slot["query"], *(slot[name] for name, _ in members)], dim=1)
        roles = Roles(self.roles, at, {"slot": slots})
        return Examples(self.inputs(torch.cat(sequence, dim=1)), targets, roles)

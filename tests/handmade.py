"""An induction head written down weight by weight: two layers of one head, attention only, no LayerNorm.

    position    0       1  2    3  4    5  6    7  8  9
    token       start   a1 b1   a2 b2   a3 b3   a2 a3 a1         (the queries in any order)
    role                pair1.first, .second    query

    residual    [ token | position | token of the position before | answer ]     each one-hot
    L0H0        every position attends to the one before and copies its token into the third slot
    L1H0        a position attends where the third slot holds its own token, and copies that token to the answer

A symbol appears in one pair only, so a query's match is unique: exactly the second member of its pair. The start
token's embedding is zero, so that position 0, which can only attend to itself, copies nothing.
"""

import warnings
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from circuits import Circuit, Examples, Roles, run_ablated
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.task import Layout

SYMBOLS, CHAINS = 12, 3
LENGTH = 1 + 3 * CHAINS
SHARP, MATCH = 200.0, 12.0  # scores of the position before, and of a matching symbol


def blank_transformer(**settings) -> HookedTransformer:
    """A transformer without LayerNorm whose weights are zero, to be written down."""
    settings |= {"normalization_type": None, "init_weights": False, "device": "cpu"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HookedTransformer(HookedTransformerConfig(**settings))
    for parameter in model.parameters():
        parameter.data.zero_()
    return model.eval()


def induction_model() -> HookedTransformer:
    """The model; its answer at a query is the one-hot of the symbol that follows."""
    widths = (SYMBOLS, LENGTH, SYMBOLS, SYMBOLS)
    token, position, before, answer = (slice(end - n, end) for n, end in zip(widths, accumulate(widths), strict=True))
    vocabulary = {"d_vocab": 1 + SYMBOLS, "d_vocab_out": SYMBOLS}  # the start token is the last
    sizes = {"n_layers": 2, "n_heads": 1, "d_model": sum(widths), "d_head": SYMBOLS, "n_ctx": LENGTH}
    model = blank_transformer(**sizes, **vocabulary, attn_only=True, use_attn_scale=False)
    symbols = torch.eye(SYMBOLS)
    with torch.no_grad():
        model.embed.W_E[:SYMBOLS, token] = symbols
        model.pos_embed.W_pos[:, position] = torch.eye(LENGTH)
        low, high = model.blocks[0].attn, model.blocks[1].attn
        for p in range(LENGTH):
            low.W_K[0, SYMBOLS + p, p] = 1.0
            low.W_Q[0, SYMBOLS + p, max(p - 1, 0)] = SHARP
        low.W_V[0, token] = symbols
        low.W_O[0, :, before] = symbols
        high.W_Q[0, token] = MATCH * symbols
        high.W_K[0, before] = symbols
        high.W_V[0, token] = symbols
        high.W_O[0, :, answer] = symbols
        model.unembed.W_U[answer] = symbols
    return model


def induction_circuit() -> Circuit:
    """Exactly the circuit that the weights carry."""
    return Circuit({"L0H0": {"pair1.second": "pair1.first"}, "L1H0": {"query": "pair1.second"}}, name="induction")


@dataclass(frozen=True)
class InductionTask:
    """The induction problem over tokens; the loss is the squared error of the one-hot answer."""

    roles: tuple[str, ...] = ("query", "pair1.first", "pair1.second")
    loss_components: tuple[str, ...] = ("x1",)
    output_roles: tuple[str, ...] = ("query",)

    def examples(self, n: int, seed: int) -> Examples:
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.stack([torch.randperm(SYMBOLS, generator=generator)[: 2 * CHAINS] for _ in range(n)])
        asked = torch.stack([torch.randperm(CHAINS, generator=generator) for _ in range(n)])
        inputs = torch.cat([torch.full((n, 1), SYMBOLS), drawn, drawn.gather(1, 2 * asked)], dim=1)
        first = torch.arange(1, 2 * CHAINS, 2).expand(n, -1)
        query = 1 + 2 * CHAINS + asked.argsort(dim=1)
        return Examples(
            inputs=inputs,
            targets=drawn.gather(1, 2 * asked + 1),
            roles=Roles(self.roles, torch.stack([query, first, first + 1], dim=1)),
        )

    def losses(self, outputs: Tensor, examples: Examples) -> Tensor:
        wanted = torch.nn.functional.one_hot(examples.targets, SYMBOLS)
        return (outputs[:, -CHAINS:] - wanted).square().sum(dim=-1).mean(dim=1, keepdim=True)


class Told(InductionTask):
    """The problem, and its symbols and answers in words."""

    unit = "logit"

    def texts(self, examples):
        return [[str(token) for token in row] for row in examples.inputs.tolist()]

    def right(self, examples):
        asked = examples.roles["query"] - (examples.inputs.shape[1] - CHAINS)
        return [[str(int(row[at])) for at in places] for row, places in zip(examples.targets, asked, strict=True)]

    def said(self, outputs, examples):
        """The symbol with the largest output at every query, in the order of the instances."""
        at = examples.roles["query"]
        told = []
        for row, places, right in zip(outputs, at, examples.targets, strict=True):
            asked = [(row[place], right[place - (row.shape[0] - len(right))]) for place in places]
            told.append([[(str(int(one.argmax())), float(one.max()), bool(one[want] > 0.5))] for one, want in asked])
        return told


class ChainTask:
    """N chains of D steps over tokens: the pairs, those of the last step first, then the queries; each block shuffled.

    Symbol k of a chain comes from alphabet k; at the query x0 the answers are the one-hot vectors of x1 ... xD.
    """

    output_roles = ("query",)

    def __init__(self, n_steps: int, n_chains: int = 3, n_symbols: int = 6):
        self.n_steps, self.n_chains, self.n_symbols = n_steps, n_chains, n_symbols
        self.n_positions, self.n_tokens = n_chains * (2 * n_steps + 1), (n_steps + 1) * n_symbols
        steps, members = range(1, n_steps + 1), ("first", "second")
        self.roles = ("query", *(f"pair{k}.{member}" for k in steps for member in members))
        self.loss_components = tuple(f"x{k}" for k in steps)
        self.read_at = dict.fromkeys(self.loss_components, "query")
        start = {
            f"pair{k}.{member}": frozenset({f"x{k - 1 + i}", f"p{k}"})
            for k in reversed(steps)
            for i, member in enumerate(members)
        }
        self.layout = Layout({**start, "query": frozenset({"x0", "p0"})}, frozenset({"p0", *(f"p{k}" for k in steps)}))

    def tokens_of(self, piece):
        first = self.n_symbols * int(piece.removeprefix("x"))
        return range(first, first + self.n_symbols)

    def positions_of(self, role):
        if role == "query":
            return range(2 * self.n_chains * self.n_steps, self.n_positions)
        start = 2 * self.n_chains * (self.n_steps - (self.roles.index(role) + 1) // 2)
        return range(start + role.endswith("second"), start + 2 * self.n_chains, 2)

    def examples(self, n, seed):
        generator = torch.Generator().manual_seed(seed)
        order = [torch.rand(n, self.n_steps + 1, most, generator=generator) for most in (self.n_symbols, self.n_chains)]
        drawn, slot = (each.argsort(dim=-1)[..., : self.n_chains] for each in order)  # [n, step, chain]
        tokens = drawn + self.n_symbols * torch.arange(self.n_steps + 1)[:, None]
        places = [(i + 1) // 2 for i in range(len(self.roles))]
        at = [torch.tensor(self.positions_of(role))[slot[:, k]] for role, k in zip(self.roles, places, strict=True)]
        inputs = torch.empty(n, self.n_positions, dtype=torch.long)
        for i, positions in enumerate(at):
            inputs.scatter_(1, positions, tokens[:, i // 2])
        return Examples(inputs, tokens[:, 1:], Roles(self.roles, torch.stack(at, dim=1), {"slot": slot[:, places]}))

    def losses(self, outputs, examples):
        return self.instance_losses(outputs, examples).mean(dim=1)

    def instance_losses(self, outputs, examples):
        answers = outputs[torch.arange(len(examples))[:, None], examples.roles["query"]]
        answers = answers.unflatten(-1, (self.n_steps, 1, self.n_symbols))
        wanted = torch.nn.functional.one_hot(examples.targets % self.n_symbols, self.n_symbols)  # [n, step, chain, one]
        return (answers[:, :, :, 0] - wanted.transpose(1, 2)).square().sum(dim=-1)


def walking_circuit(n_steps: int) -> Circuit:
    """The circuit that joins all pairs in layer 0, and takes the query to pair k in layer k."""
    joined = {f"pair{k}.second": f"pair{k}.first" for k in range(1, n_steps + 1)}
    return Circuit({"L0H0": joined, **{f"L{k}H0": {"query": f"pair{k}.second"} for k in range(1, n_steps + 1)}})


def doubling_circuit() -> Circuit:
    """Two steps: both pairs are joined, the first takes over the second, and the query takes it all."""
    joined = {"pair1.second": "pair1.first", "pair2.second": "pair2.first"}
    return Circuit({"L0H0": joined, "L1H0": {"pair1.second": "pair2.second"}, "L2H0": {"query": "pair1.second"}})


def losses_by_hooks(model, task, examples: Examples, circuits: list[Circuit]) -> Tensor:
    """The losses of circuits that are run one by one, with plain hooks."""
    with torch.no_grad():
        return torch.stack([task.losses(run_ablated(model, one, examples), examples) for one in circuits])


def random_transformer(task: ChainTask, **changes) -> HookedTransformer:
    """A transformer of three layers of two heads whose weights are drawn at random."""
    sizes = {"n_layers": 3, "n_heads": 2, "d_model": 32, "d_head": 16, "n_ctx": task.n_positions, "act_fn": "relu"}
    vocabulary = {"d_vocab": task.n_tokens, "d_vocab_out": task.n_steps * task.n_symbols}
    return HookedTransformer(HookedTransformerConfig(**sizes | vocabulary | changes, seed=3, device="cpu")).eval()

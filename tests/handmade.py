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

import torch
from torch import Tensor

from circuits import Circuit, Examples, Head, OneHot, Roles
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig

SYMBOLS, CHAINS = 12, 3
LENGTH = 1 + 3 * CHAINS
SHARP, MATCH = 200.0, 12.0  # scores of the position before, and of a matching symbol


def induction_model() -> HookedTransformer:
    """The model; its answer at a query is the one-hot of the symbol that follows."""
    width = SYMBOLS + LENGTH + SYMBOLS + SYMBOLS
    cfg = HookedTransformerConfig(
        n_layers=2,
        n_heads=1,
        d_model=width,
        d_head=SYMBOLS,
        n_ctx=LENGTH,
        d_vocab=1 + SYMBOLS,  # the start token is the last
        d_vocab_out=SYMBOLS,
        attn_only=True,
        normalization_type=None,
        use_attn_scale=False,
        init_weights=False,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = HookedTransformer(cfg)
    token, position, before, answer = (
        slice(0, SYMBOLS),
        slice(SYMBOLS, SYMBOLS + LENGTH),
        slice(SYMBOLS + LENGTH, 2 * SYMBOLS + LENGTH),
        slice(2 * SYMBOLS + LENGTH, width),
    )
    symbols = torch.eye(SYMBOLS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
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
    return model.eval()


def induction_circuit() -> Circuit:
    """Exactly the circuit that the weights carry."""
    return Circuit(
        {Head(0, 0): OneHot({"pair1.second": "pair1.first"}), Head(1, 0): OneHot({"query": "pair1.second"})},
        name="induction",
    )


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
        start = torch.full((n, 1), SYMBOLS)
        inputs = torch.cat([start, drawn, drawn.gather(1, 2 * asked)], dim=1)
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

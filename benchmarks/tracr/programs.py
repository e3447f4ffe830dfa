"""Three of tracr's programs as models: what they compute, and what their heads select.

A head of a compiled program carries out one selector of the program: it attends equally to all keys that the selector
holds for. Programs that count also attend to ``BOS``, and a head whose selector holds for nothing attends to ``BOS``.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from safetensors import safe_open
from torch import Tensor

from circuits import Examples, Head, Roles
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig

DATA = Path(__file__).parents[2] / "data" / "tracr"
N = 4  # tokens after BOS
VARIANCE_EXAMPLES = 4096
Tokens = Int[Tensor, "batch pos"]  # 0, 1, 2, ..., without BOS
Selector = Callable[[Tokens], Bool[Tensor, "batch query key"]]


def _at_most(tokens: Tokens) -> Bool[Tensor, "batch query key"]:
    return torch.ones(N, N).tril().bool().expand(len(tokens), N, N)


def _all(tokens: Tokens) -> Bool[Tensor, "batch query key"]:
    return torch.ones(len(tokens), N, N).bool()


def _opposite(tokens: Tokens) -> Bool[Tensor, "batch query key"]:
    return torch.eye(N).flip(0).bool().expand(len(tokens), N, N)


def _smaller(tokens: Tokens) -> Bool[Tensor, "batch query key"]:
    return tokens[:, None, :] < tokens[:, :, None]


def _of_rank(tokens: Tokens) -> Bool[Tensor, "batch query key"]:
    return tokens.argsort(dim=1)[:, :, None] == torch.arange(N)


def _fractions(tokens: Tokens) -> Float[Tensor, "batch pos output"]:
    return ((tokens == 1).cumsum(dim=1) / torch.arange(1, N + 1))[..., None]  # the second token is x


def _one_hot(tokens: Tokens, n: int) -> Float[Tensor, "batch pos output"]:
    return torch.nn.functional.one_hot(tokens, n).float()


@dataclass(frozen=True)
class Program:
    """A compiled program.

    Attributes:
        name: its name.
        n_tokens: the number of tokens besides BOS.
        right: the right outputs.
        selectors: the selector of every head that has one, over the tokens after BOS; the other heads are idle.
        unique: whether the tokens of an example differ.
    """

    name: str
    n_tokens: int
    right: Callable[[Tokens], Float[Tensor, "batch pos output"]]
    selectors: dict[Head, Selector]
    unique: bool = False


PROGRAMS = (
    Program("frac_prevs", 4, _fractions, {Head(1, 0): _at_most}),
    Program("reverse", 3, lambda own: _one_hot(own.flip(1), 3), {Head(0, 0): _all, Head(3, 0): _opposite}),
    Program(
        "sort_unique",
        6,
        lambda own: _one_hot(own.sort(dim=1).values, 6),
        {Head(0, 0): _smaller, Head(1, 0): _of_rank},
        unique=True,
    ),
)


def sizes(program: Program) -> dict[str, Any]:
    """Return a program's sizes and token numbers, as its file has them."""
    with safe_open(DATA / f"{program.name}.safetensors", "pt") as file:
        return dict(json.loads(file.metadata()["sizes"]))


def stored(program: Program) -> dict[str, Tensor]:
    """Return a program's weights, and tracr's own ``inputs`` and ``outputs``."""
    with safe_open(DATA / f"{program.name}.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


def model_of(program: Program) -> HookedTransformer:
    """Return a program as a transformer."""
    weights, own = stored(program), sizes(program)
    d_model, d_out = weights["unembed.W_U"].shape
    model = HookedTransformer(
        HookedTransformerConfig(
            **{key: own[key] for key in ("n_layers", "n_heads", "d_head", "d_mlp")},
            d_model=d_model,
            d_vocab=len(weights["embed.W_E"]),
            d_vocab_out=d_out,
            n_ctx=len(weights["pos_embed.W_pos"]),
            act_fn="relu",
            normalization_type=None,
            attention_dir="bidirectional",
        )
    )
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model.eval()


class Task:
    """What a program computes, as a problem; the loss is the squared error, 1 for one who always says the average.

    The roles are the places of the tokens. For ``sort_unique``, every place is an instance with two roles: the
    ``place``, and the token that is ``wanted`` there.
    """

    loss_components = ("output",)

    def __init__(self, program: Program) -> None:
        self.program, own = program, sizes(program)
        self._tokens, self._bos = torch.tensor(own["tokens"]), int(own["bos"])
        places = tuple(f"token {place}" for place in range(1, N + 1))
        self.roles = ("BOS", "place", "wanted") if program.unique else ("BOS", *places)
        self.output_roles = ("place",) if program.unique else places
        right = self.examples(VARIANCE_EXAMPLES, seed=0).targets
        self._variance = (right - right.mean(dim=0)).square().sum(dim=-1).mean()

    def examples(self, n: int, seed: int) -> Examples:
        """Draw examples."""
        rng, kinds = torch.Generator().manual_seed(seed), self.program.n_tokens
        if self.program.unique:
            tokens = torch.rand(n, kinds, generator=rng).argsort(dim=1)[:, :N]
        else:
            tokens = torch.randint(kinds, (n, N), generator=rng)
        inputs = torch.cat([torch.full((n, 1), self._bos), self._tokens[tokens]], dim=1)
        return Examples(inputs, self.program.right(tokens), self._roles(tokens))

    def _roles(self, tokens: Tokens) -> Roles:
        places = torch.arange(N + 1).expand(len(tokens), -1)
        if not self.program.unique:
            return Roles(self.roles, places[..., None], causal=False)
        here = places[:, 1:]
        positions = torch.stack([torch.zeros_like(here), here, tokens.argsort(dim=1) + 1], dim=1)
        return Roles(self.roles, positions, {"rank": (here - 1)[:, None].expand_as(positions)}, causal=False)

    def tokens(self, examples: Examples) -> Tokens:
        """Return the tokens of examples, without BOS, as numbers from 0."""
        return (examples.inputs[:, 1:, None] == self._tokens).long().argmax(dim=-1)

    def losses(
        self, outputs: Float[Tensor, "batch pos output"], examples: Examples
    ) -> Float[Tensor, "batch component"]:
        """Return the squared error of every example, as a share of the variance of the right outputs."""
        error = (outputs[:, 1:] - examples.targets).square().sum(dim=-1).mean(dim=1)
        return (error / self._variance)[:, None]

"""Models that others made: does ``discover`` find the selectors of three of tracr's programs?

    python studies/tracr/run.py

A head of a compiled program carries out one selector: it attends equally to all keys that the selector holds for, or to
``BOS`` if it holds for none. A head of the found circuit selects, for each token, the tokens to which it gives more
than half of the row's highest attention to a token, if that is more than 0.05. README.md has the rule.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from safetensors import safe_open
from torch import Tensor

from circuits import Examples, Head, Roles, discover
from circuits.mechanisms.mechanism import head_pattern
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.model.layers import attention_patterns

HERE = Path(__file__).parent
N = 4  # tokens after BOS
SEEN, LEAST = 0.5, 0.05  # of a row's highest attention; and at least
N_EXAMPLES, FRESH, VARIANCE_EXAMPLES = 256, 987654321, 4096

Tokens = Int[Tensor, "batch pos"]  # 0, 1, 2, ..., without BOS
Pairs = Bool[Tensor, "batch query key"]
Outputs = Float[Tensor, "batch pos output"]


def one_hot(tokens: Tokens, n: int) -> Outputs:
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
    right: Callable[[Tokens], Outputs]
    selectors: dict[Head, Callable[[Tokens], Pairs]]
    unique: bool = False


PROGRAMS = (
    Program(
        "frac_prevs",
        4,
        lambda tokens: ((tokens == 1).cumsum(dim=1) / torch.arange(1, N + 1))[..., None],  # the second token is x
        {Head(1, 0): lambda tokens: torch.ones(N, N).tril().bool().expand(len(tokens), N, N)},
    ),
    Program(
        "reverse",
        3,
        lambda tokens: one_hot(tokens.flip(1), 3),
        {
            Head(0, 0): lambda tokens: torch.ones(len(tokens), N, N).bool(),
            Head(3, 0): lambda tokens: torch.eye(N).flip(0).bool().expand(len(tokens), N, N),
        },
    ),
    Program(
        "sort_unique",
        6,
        lambda tokens: one_hot(tokens.sort(dim=1).values, 6),
        {
            Head(0, 0): lambda tokens: tokens[:, None, :] < tokens[:, :, None],
            Head(1, 0): lambda tokens: tokens.argsort(dim=1)[:, :, None] == torch.arange(N),
        },
        unique=True,
    ),
)


def stored(program: Program) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return a program's weights with tracr's own ``inputs`` and ``outputs``, and its sizes and token numbers."""
    with safe_open(HERE / f"{program.name}.safetensors", "pt") as file:
        return {key: file.get_tensor(key) for key in file.keys()}, json.loads(file.metadata()["sizes"])  # noqa: SIM118


def model_of(program: Program) -> HookedTransformer:
    """Return a program as a transformer."""
    weights, own = stored(program)
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
    """What a program computes; the loss is the squared error, 1 for one who always says the average.

    The roles are the places of the tokens. For ``sort_unique``, every place is an instance with two roles: the
    ``place``, and the token that is ``wanted`` there.
    """

    loss_components = ("output",)

    def __init__(self, program: Program) -> None:
        self.program, own = program, stored(program)[1]
        self._tokens, self._bos = torch.tensor(own["tokens"]), int(own["bos"])
        places = tuple(f"token {place}" for place in range(1, N + 1))
        self.roles = ("BOS", "place", "wanted") if program.unique else ("BOS", *places)
        self.output_roles = ("place",) if program.unique else places
        right = self.examples(VARIANCE_EXAMPLES, seed=0).targets
        self._variance = (right - right.mean(dim=0)).square().sum(dim=-1).mean()

    def examples(self, n: int, seed: int) -> Examples:
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

    def losses(self, outputs: Outputs, examples: Examples) -> Float[Tensor, "batch component"]:
        error = (outputs[:, 1:] - examples.targets).square().sum(dim=-1).mean(dim=1)
        return (error / self._variance)[:, None]


def pairs(pattern: Float[Tensor, "batch query key"]) -> Pairs:
    """Return which tokens a pattern selects for which, without BOS."""
    among = pattern[:, 1:, 1:]
    return (among > SEEN * among.amax(dim=-1, keepdim=True)) & (among > LEAST)


def compared(program: Program) -> list[dict[str, Any]]:
    """Check the weights of a program, discover its circuit, and compare every head with the program's selectors."""
    model, task, (own, _) = model_of(program), Task(program), stored(program)
    examples = task.examples(N_EXAMPLES, FRESH)
    tokens = task.tokens(examples)
    with torch.no_grad():
        assert torch.allclose(model(own["inputs"]), own["outputs"], atol=1e-4), "the outputs are not tracr's"
        attention = dict(attention_patterns(model, examples))
    found, rows = discover(model, task, n_examples=N_EXAMPLES), []
    for head, mechanism in found.circuit.heads.items():
        row = {
            "program": program.name,
            "head": str(head),
            "idle": head not in program.selectors,
            "found": str(mechanism),
        }
        if not row["idle"]:
            true = program.selectors[head](tokens)
            assert torch.equal(pairs(attention[head.layer][:, head.index]), true), f"{head} is not its selector"
            selected = pairs(head_pattern(head, mechanism, examples.roles, N + 1).expand(N_EXAMPLES, -1, -1))
            both = (selected & true).sum().item()
            row |= {"precision": both / max(int(selected.sum()), 1), "recall": both / max(int(true.sum()), 1)}
        rows.append({**row, "loss": found.combined.mean, "sequences": found.n_evaluations})
    return rows


if __name__ == "__main__":
    table = pd.DataFrame([row for program in PROGRAMS for row in compared(program)]).round(4)
    table.to_csv(HERE / "table.csv", index=False)
    print(table.to_string(index=False))

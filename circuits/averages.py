"""What heads do on average over examples, by position: their attention patterns and their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import examples_of, stream_seed
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.model.layers import attention
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.roles import Roles
from circuits.settings import current
from circuits.split import part, sizes
from circuits.task import Examples, Task


@dataclass(frozen=True, eq=False)
class Averages:
    """The averages of a model's heads.

    Positions count from the first token; with padding, a position is averaged over the examples that are that long.

    Attributes:
        attention: the average attention, ``[layer, head, query, key]``.
        outputs: the average output z of every head, ``[layer, pos, head, d_head]``.
    """

    attention: Float[Tensor, "layer head query key"]
    outputs: Float[Tensor, "layer pos head d_head"]

    @classmethod
    def of(cls, model: Transformer, examples: Examples) -> Averages:
        """Average over some examples."""
        cfg, n_positions, roles = model.cfg, examples.inputs.shape[1], examples.roles
        patterns = torch.zeros(cfg.n_layers, cfg.n_heads, n_positions, n_positions)
        outputs = torch.zeros(cfg.n_layers, n_positions, cfg.n_heads, cfg.d_head)
        at_once = sequences_at_once(cfg.n_heads, n_positions)
        for start in range(0, len(examples), at_once):
            batch = examples.take(slice(start, start + at_once))
            for layer, pattern, z in attention(model, batch):
                patterns[layer] += batch.roles.aligned(pattern, -2, -1).float().sum(dim=0).cpu()
                outputs[layer] += batch.roles.aligned(z, 1).float().sum(dim=0).cpu()
        times = roles.times(n_positions).clamp(min=1).cpu()
        return cls(patterns / times[:, None], outputs / times[:, None, None])

    @cached_property
    def patterns(self) -> dict[Head, FixedPattern]:
        """Every head's average attention pattern, as a mechanism."""
        n_layers, n_heads = self.attention.shape[:2]
        heads = [Head(layer, index) for layer in range(n_layers) for index in range(n_heads)]
        return {head: FixedPattern(self.attention[head.layer, head.index], "mean") for head in heads}

    def output(self, head: Head, roles: Roles, n_positions: int) -> Float[Tensor, "#batch pos d_head"]:
        """Return a head's average output z at every position of some examples.

        Raises:
            BadInput: the examples have another length.
        """
        if self.outputs.shape[1] != n_positions:
            raise BadInput(f"averages over {self.outputs.shape[1]} positions; the examples have {n_positions}")
        average = self.outputs[head.layer, :, head.index].to(roles.positions.device)
        return roles.from_first_token(average[None], 1)


def averaged_examples(
    model: Transformer, task: Task, seed: int = 0, n_examples: int | None = None, stream: str = "means"
) -> Examples:
    """Return the examples that are averaged over, from an rng stream of their own; 1,024 by default."""
    n, device = n_examples or current().averaged, next(model.parameters()).device
    there = sizes(task).get(stream, n)  # a data set may have fewer
    return examples_of(part(task, stream), min(n, there), stream_seed(seed, stream), device)


@entrance
def averages(
    model: Transformer, task: Task, seed: int = 0, n_examples: int | None = None, stream: str = "means"
) -> Averages:
    """Return the averages of a model's heads over fresh examples, from the rng stream of this name; 1,024 by default.

    Raises:
        BadInput: the seed or the number of examples cannot be used.
    """
    return Averages.of(model, averaged_examples(model, task, seed, n_examples, stream))

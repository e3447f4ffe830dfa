"""What heads do on average over examples, by position: their attention patterns and their outputs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.circuit import Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.given import examples_of, stream_seed
from circuits.mechanisms.fixed_pattern import FixedPattern, check_layouts
from circuits.model.layers import attention
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.roles import Roles
from circuits.settings import current, has_many_heads
from circuits.split import part, sizes
from circuits.task import Examples, Task
from circuits.utils.kept import keep, kept, key_of


@dataclass(frozen=True, eq=False)
class Averages:
    """The averages of a model's heads.

    They are taken within a layout of the examples (``Roles.layout``). Positions count from the first token.

    Attributes:
        attention: the average attention, ``[layout, layer, head, query, key]``.
        outputs: the average output z of every head, ``[layout, layer, pos, head, d_head]``.
        times: the number of examples of each layout.
    """

    attention: Float[Tensor, "layout layer head query key"]
    outputs: Float[Tensor, "layout layer pos head d_head"]
    times: Int[Tensor, " layout"]

    @classmethod
    def of(cls, model: Transformer, examples: Examples) -> Averages:
        """Average over some examples; BadInput if they have different lengths and no layout."""
        cfg, n_positions, layouts = model.cfg, examples.inputs.shape[1], examples.roles.layouts("averages").cpu()
        times, key = torch.bincount(layouts), key_of(examples.inputs, len(examples), "averages")
        if found := kept(key):
            return cls(**found)
        patterns = torch.zeros(len(times), cfg.n_layers, cfg.n_heads, n_positions, n_positions)
        outputs = torch.zeros(len(times), cfg.n_layers, n_positions, cfg.n_heads, cfg.d_head)
        at_once = sequences_at_once(cfg.n_heads, n_positions)
        for start in range(0, len(examples), at_once):
            batch, of = examples.take(slice(start, start + at_once)), layouts[start : start + at_once]
            for layer, pattern, z in attention(model, batch):
                for total, seen in (
                    (patterns, batch.roles.aligned(pattern, -2, -1)),
                    (outputs, batch.roles.aligned(z, 1)),
                ):
                    for kind in of.unique():
                        total[kind, layer] += seen[of == kind].float().sum(dim=0).cpu()
        each = times.clamp(min=1)[:, None, None, None, None]
        keep(key, {"attention": patterns / each, "outputs": outputs / each, "times": times})
        return cls(patterns / each, outputs / each, times)

    @cached_property
    def patterns(self) -> dict[Head, FixedPattern]:
        """Every head's average attention pattern, as a mechanism."""
        n_layers, n_heads = self.attention.shape[1:3]
        heads = [Head(layer, index) for layer in range(n_layers) for index in range(n_heads)]
        means = self.attention[0] if len(self.attention) == 1 else self.attention.permute(1, 2, 0, 3, 4)
        return {head: FixedPattern(means[head.layer, head.index], "mean") for head in heads}

    def output(self, head: Head, roles: Roles, n_positions: int) -> Float[Tensor, "#batch pos d_head"]:
        """Return a head's average output z at every position of some examples; BadInput if the examples have another
        length, or a layout that is in no average.
        """
        if self.outputs.shape[2] != n_positions:
            raise BadInput(f"averages over {self.outputs.shape[2]} positions; the examples have {n_positions}")
        layouts = roles.layouts("averages").cpu()
        check_layouts("averages", layouts, self.times > 0)
        average = self.outputs[:, head.layer, :, head.index].to(roles.positions.device)
        return roles.from_first_token(average if len(average) == 1 else average[layouts], 1)


def averaged_examples(
    model: Transformer, task: Task, seed: int = 0, n_examples: int | None = None, stream: str = "means"
) -> Examples:
    """Return the examples that are averaged over, from an rng stream of their own; by default as for ``averages``."""
    usual = current().averaged_of_many if has_many_heads(model.cfg) else current().averaged
    n, device = n_examples or usual, next(model.parameters()).device
    there = sizes(task).get(stream, n)  # a data set may have fewer
    return examples_of(part(task, stream), min(n, there), stream_seed(seed, stream), device)


@entrance
def averages(
    model: Transformer, task: Task, seed: int = 0, n_examples: int | None = None, stream: str = "means"
) -> Averages:
    """Return the averages of a model's heads over fresh examples of an rng stream; by default 1,024, of many heads 256.

    Raises:
        BadInput: the seed or the number of examples cannot be used.
    """
    return Averages.of(model, averaged_examples(model, task, seed, n_examples, stream))

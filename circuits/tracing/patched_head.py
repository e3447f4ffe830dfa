"""One head with one of its inputs patched: its attention, its output, and the losses with another output."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.heads import Head
from circuits.model.layers import EditHeads, layers
from circuits.model.transformer import sequences_at_once
from circuits.tracing.unablated import Unablated

Patched = tuple[Float[Tensor, "#sender example instance key"], Float[Tensor, "sender example instance d_head"]]
At = tuple[Int[Tensor, " row"], Int[Tensor, " row"]]  # examples and positions


class PatchedHead:
    """A head of any model; its layer runs once on the patched input, and once with the queries, keys or values of it.

    Attributes:
        run: the unablated run.
        head: the head.
        source: the positions at which its attention and its output are read.
    """

    def __init__(self, run: Unablated, head: Head, source: Int[Tensor, "example instance"]) -> None:
        self.run, self.head, self.source = run, head, source

    @property
    def pattern(self) -> Float[Tensor, "example instance key"]:
        """The head's own attention from the source."""
        patterns = self.run.cache[f"blocks.{self.head.layer}.attn.hook_pattern"]
        return patterns[self.run.example, self.head.index, self.source]

    def patched(
        self, which: str, at: Int[Tensor, "example instance"], rows: Float[Tensor, "sender example instance d_model"]
    ) -> Patched:
        """Return the head's attention and its output z at the source, with one input patched.

        Args:
            which: the input, ``Q``, ``K`` or ``V``.
            at: the positions at which the input is patched.
            rows: the residual stream that the input reads there, for every sender.
        """
        whole = sequences_at_once(self.run.model.cfg.n_heads, self.run.examples.inputs.shape[1])
        parts = [self._patched(which, at, part) for part in rows.split(max(1, whole // len(at)))]
        patterns, z = zip(*parts, strict=True)
        return torch.cat(patterns), torch.cat(z)

    @torch.no_grad()
    def _patched(
        self, which: str, at: Int[Tensor, "example instance"], rows: Float[Tensor, "sender example instance d_model"]
    ) -> Patched:
        example, layer, index, n_senders = self.run.example, self.head.layer, self.head.index, len(rows)
        n_heads = int(self.run.model.cfg.n_heads)  # heads share keys and values if there are fewer of these
        intact = self.run.residuals[layer].repeat(n_senders, 1, 1, 1)
        patched = intact.clone()
        patched[:, example, at] = rows
        seen: dict[str, Tensor] = {}

        def keep(value: Tensor, name: str) -> Tensor:
            seen[name] = value.unflatten(0, (n_senders, -1))
            return value

        def put(value: Tensor) -> Tensor:
            new, shared = value.unflatten(0, (n_senders, -1)).clone(), index * value.shape[2] // n_heads
            new[:, example, at, shared] = seen["input"][:, example, at, shared]
            return new.flatten(0, 1)

        opened, name = layers(self.run.model, self.run.examples), which.lower()
        opened.block(layer, patched.flatten(0, 1), heads={name: partial(keep, name="input")})
        heads: EditHeads = {name: put, "z": partial(keep, name="z")}
        opened.block(layer, intact.flatten(0, 1), partial(keep, name="pattern"), heads=heads)
        return seen["pattern"][:, example, index, self.source], seen["z"][:, example, self.source, index]

    @torch.no_grad()
    def losses(self, at: At, z: Float[Tensor, "row d_head"]) -> Float[Tensor, " example"]:
        """Return the losses with another output of the head at some positions."""

        def put(value: Tensor) -> Tensor:
            new = value.clone()
            new[at[0], at[1], self.head.index] = z
            return new

        opened, layer = layers(self.run.model, self.run.examples), self.head.layer
        return self.run.losses_above(layer, opened.block(layer, self.run.residuals[layer], heads={"z": put}))

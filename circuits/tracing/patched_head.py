"""One head with one of its inputs patched: its attention, its output, and the losses with another output."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.heads import Head
from circuits.model.block import after_mlp, attention_scores, is_like_gpt2, normalised
from circuits.model.layers import EditHeads, layers
from circuits.model.transformer import sequences_at_once
from circuits.tracing.unablated import Unablated

Patched = tuple[Float[Tensor, "#sender example instance key"], Float[Tensor, "sender example instance d_head"]]
At = tuple[Int[Tensor, " row"], Int[Tensor, " row"]]  # examples and positions


def patched_head(run: Unablated, head: Head, source: Int[Tensor, "example instance"]) -> PatchedHead:
    """Return a head that is read at some positions, in the fastest way that gives the head's own attention."""
    product = ProductHead(run, head, source)
    return product if is_like_gpt2(run.model) and product.is_right else PatchedHead(run, head, source)


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
        at_once = max(1, sequences_at_once(self.run.model.cfg.n_heads, at.shape[1]) // len(at))
        parts = [self._patched(which, at, part) for part in rows.split(at_once)]
        patterns, z = zip(*parts, strict=True)
        return torch.cat(patterns), torch.cat(z)

    @torch.no_grad()
    def _patched(
        self, which: str, at: Int[Tensor, "example instance"], rows: Float[Tensor, "sender example instance d_model"]
    ) -> Patched:
        example, layer, index, n_senders = self.run.example, self.head.layer, self.head.index, len(rows)
        intact = self.run.residual(layer).repeat(n_senders, 1, 1, 1)
        patched = intact.clone()
        patched[:, example, at] = rows
        seen: dict[str, Tensor] = {}

        def keep(value: Tensor, name: str) -> Tensor:
            seen[name] = value.unflatten(0, (n_senders, -1))
            return value

        def put(value: Tensor) -> Tensor:
            new, shared = value.unflatten(0, (n_senders, -1)).clone(), self.run.index(self.head, value.shape[2])
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
        return self.run.losses_above(layer, opened.block(layer, self.run.residual(layer), heads={"z": put}))


class ProductHead(PatchedHead):
    """A head that attends by the product of its queries and keys, as in GPT-2; only what changes is computed."""

    @property
    def is_right(self) -> bool:
        """Whether the product of queries and keys gives the head's own attention."""
        again = self._attention(self._queries, self.run.part(self.head, "k"))
        return torch.allclose(self.pattern, again, atol=1e-3)

    @property
    def _queries(self) -> Float[Tensor, "example instance d_head"]:
        return self.run.part(self.head, "q")[self.run.example, self.source]

    def _attention(
        self, queries: Float[Tensor, "*q example instance d_head"], keys: Float[Tensor, "*k example pos d_head"]
    ) -> Float[Tensor, "*variant example instance pos"]:
        seen = torch.arange(keys.shape[-2], device=keys.device) <= self.source[..., None]
        scale = self.run.model.blocks[self.head.layer].attn.attn_scale
        return attention_scores(queries, keys, scale, seen).softmax(dim=-1)

    def patched(
        self, which: str, at: Int[Tensor, "example instance"], rows: Float[Tensor, "sender example instance d_model"]
    ) -> Patched:
        """Return the head's attention and its output z at the source, with one input patched."""
        block, index = self.run.model.blocks[self.head.layer], self.head.index
        weight, bias = getattr(block.attn, f"W_{which}")[index], getattr(block.attn, f"b_{which}")[index]
        new = normalised(block.ln1, rows) @ weight + bias  # [sender, example, instance, d_head]
        keys, values = self.run.part(self.head, "k"), self.run.part(self.head, "v")
        if which == "Q":
            pattern = self._attention(new, keys)
            return pattern, pattern @ values
        changed = (keys if which == "K" else values).repeat(len(new), 1, 1, 1)
        changed[:, self.run.example, at] = new
        pattern = self._attention(self._queries, changed) if which == "K" else self.pattern[None]
        return pattern, pattern @ (values if which == "K" else changed)

    def losses(self, at: At, z: Float[Tensor, "row d_head"]) -> Float[Tensor, " example"]:
        """Return the losses with another output of the head at some positions."""
        layer, index = self.head
        block, attention = self.run.model.blocks[layer], self.run.cache[f"blocks.{layer}.hook_attn_out"]
        changed = (z - self.run.part(self.head, "z")[at]) @ block.attn.W_O[index]
        rows = after_mlp(block, self.run.residual(layer)[at] + attention[at] + changed)
        first = int(at[1].min())  # attention is causal: the positions before it stay as they are
        residual = self.run.residual(layer + 1)[:, first:].clone()
        residual[at[0], at[1] - first] = rows
        return self.run.losses_above(layer, residual)

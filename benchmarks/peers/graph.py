"""A transformer as a graph: what each node writes reaches every later node by an edge of its own.

    senders     the embedding; then, layer by layer, the heads and the MLP
    receivers   layer by layer, the heads and the MLP; then the output

An edge is *patched* if its receiver gets what its sender writes in the counterfactual example. Queries, keys and values
of a head are one input. Nodes, edges and patching are those of ACDC (Conmy et al. 2023, *Towards Automated Circuit
Discovery for Mechanistic Interpretability*).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits import Head
from circuits.model.hooked_transformer import HookedTransformer

Written = Float[Tensor, "sender batch pos d_model"]
Edges = Float[Tensor, "receiver sender"]
FLAGS = ("use_attn_in", "use_hook_mlp_in")  # each head's input, and each MLP's


class Graph:
    """A model's graph on some examples with their counterfactuals.

    Attributes:
        possible: 1 where a sender comes before a receiver, ``[receiver, sender]``.
        received: for every head, its index as a receiver; as a sender it has the next one.
        corrupted: what every sender writes on the counterfactuals.
        n_forward: the number of forward passes so far, each of all examples.
        n_backward: the number of backward passes.
    """

    def __init__(
        self, model: HookedTransformer, inputs: Int[Tensor, "batch pos"], other: Int[Tensor, "batch pos"]
    ) -> None:
        self.model, self.inputs = model, inputs
        self.n_layers, self.n_heads = model.cfg.n_layers, model.cfg.n_heads
        heads = [Head(layer, index) for layer in range(self.n_layers) for index in range(self.n_heads)]
        self.received = {head: self._first(head.layer) + head.index for head in heads}
        n = self._first(self.n_layers) + 1
        self.possible = torch.zeros(n, n)
        for layer in range(self.n_layers + 1):
            first = self._first(layer)
            self.possible[first : first + self.n_heads, : first + 1] = 1
            self.possible[first + self.n_heads :, : first + 1 + self.n_heads] = 1
        self.n_forward = self.n_backward = 0
        with torch.no_grad():
            _, self.corrupted = self.run(torch.zeros(n, n), inputs=other)

    def _first(self, layer: int) -> int:
        """Return the index of a layer's first head as a receiver."""
        return layer * (self.n_heads + 1)

    def run(
        self,
        patched: Edges,
        added: Written | None = None,
        embedding: Float[Tensor, "batch pos d_model"] | None = None,
        inputs: Int[Tensor, "batch pos"] | None = None,
    ) -> tuple[Float[Tensor, "batch pos d_out"], Written]:
        """Return the outputs, and what every sender wrote, with some edges patched.

        Args:
            patched: 1 for a patched edge, 0 for all others.
            added: what a patched edge adds to its receiver, by sender; by default the difference between the
                counterfactual and what the sender has written in this run.
            embedding: what the embedding writes instead.
            inputs: other inputs; by default those of the graph.
        """
        self.n_forward += 1
        written: list[Tensor] = []

        def extra(first: int, n: int) -> Float[Tensor, "batch pos receiver d_model"] | float:
            """Return what is added to the inputs of ``n`` receivers."""
            rows = patched[first : first + n, : len(written)]
            if not (rows.requires_grad or rows.any()):
                return 0.0
            differences = self.corrupted[: len(written)] - torch.stack(written) if added is None else added
            return torch.einsum("rs,sbpd->bprd", rows, differences[: len(written)])

        def embed(x: Tensor, hook: Any) -> Tensor:
            written.append(x if embedding is None else embedding)
            return written[0]

        def write(x: Tensor, hook: Any) -> None:
            written.append(x)

        def write_heads(x: Tensor, hook: Any) -> None:
            each = torch.einsum("bphv,hvd->hbpd", x, self.model.blocks[hook.layer()].attn.W_O)
            written.extend(each)

        def read(first: int, n: int) -> Callable[[Tensor, Any], Tensor]:
            def hooked(x: Tensor, hook: Any) -> Tensor:
                by_receiver = x if x.ndim == 4 else x[:, :, None]
                return (by_receiver + extra(first, n)).reshape(x.shape)

            return hooked

        hooks: list[tuple[str, Any]] = [("blocks.0.hook_resid_pre", embed)]
        for layer in range(self.n_layers):
            first = self._first(layer)
            hooks += [
                (f"blocks.{layer}.hook_attn_in", read(first, self.n_heads)),
                (f"blocks.{layer}.attn.hook_z", write_heads),
                (f"blocks.{layer}.hook_mlp_in", read(first + self.n_heads, 1)),
                (f"blocks.{layer}.hook_mlp_out", write),
            ]
        hooks.append((f"blocks.{self.n_layers - 1}.hook_resid_post", read(self._first(self.n_layers), 1)))
        with _apart(self.model), self.model.hooks(fwd_hooks=hooks):
            outputs = self.model(self.inputs if inputs is None else inputs)
        return outputs, torch.stack(written)


@contextmanager
def _apart(model: HookedTransformer) -> Iterator[None]:
    """Let a model compute the inputs of its heads one by one, within a ``with`` block."""
    before = {flag: getattr(model.cfg, flag) for flag in FLAGS}
    try:
        for flag in FLAGS:
            setattr(model.cfg, flag, True)
        yield
    finally:
        for flag, value in before.items():
            setattr(model.cfg, flag, value)

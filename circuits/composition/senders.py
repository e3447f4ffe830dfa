"""Senders: what each part of a model wrote into the residual stream that enters a layer.

    residual stream = embed + every lower head's z @ W_O + every lower MLP + the lower layers' b_O

The biases b_O are the same at every position, so that exchanging them between positions changes nothing.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.composition.sender import EMBED, Sender
from circuits.composition.unablated import Unablated
from circuits.errors import BadInput
from circuits.model.layers import close


def senders_below(layer: int, cfg: Any) -> tuple[Sender, ...]:
    """Return all senders that write into the residual stream that enters a layer, from the lowest up."""
    heads = [Sender(below, index=index) for below in range(layer) for index in range(cfg.n_heads)]
    mlps = [] if cfg.attn_only else [Sender(below, is_mlp=True) for below in range(layer)]
    return (EMBED, *sorted([*heads, *mlps]))


def written(
    run: Unablated, layer: int, at: Int[Tensor, "example instance"]
) -> Float[Tensor, "sender example instance d_model"]:
    """Return what each sender wrote at some positions, in the order of ``senders_below``.

    Raises:
        BadInput: the parts do not add up to the residual stream.
    """
    parts = []
    for sender in senders_below(layer, run.model.cfg):
        if sender == EMBED:
            parts.append(run.residual(0)[run.example, at])
        elif sender.head:
            weight = run.model.blocks[sender.layer].attn.W_O[sender.index]
            parts.append(run.part(sender.head, "z")[run.example, at] @ weight)
        else:
            parts.append(run.mlp(sender.layer)[run.example, at])
    found = torch.stack(parts)
    biases = [run.model.blocks[below].attn.b_O for below in range(layer)]  # None for some architectures
    constant = sum((own for own in biases if own is not None), torch.zeros(()).to(found.device))
    residual = run.residual(layer)[run.example, at]
    together = found.sum(dim=0) + constant
    if not close(together, residual):
        furthest = (together - residual).abs().max()
        raise BadInput(
            f"what the parts below layer {layer} write differs from the residual stream by {furthest:.2g}; "
            "expected a model whose heads and MLPs add to it"
        )
    return found

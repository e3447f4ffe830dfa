"""Composition scores of pairs of heads (Elhage et al. 2021): from the weights alone, how well heads fit together.

    Q-composition   |W_OV W_QK|   / (|W_OV| |W_QK|)      W_OV = W_V W_O of the sender, W_QK = W_Q W_K^T of the receiver
    K-composition   |W_OV W_QK^T| / (|W_OV| |W_QK|)
    V-composition   |W_OV W_OV'|  / (|W_OV| |W_OV'|)

Norms are Frobenius norms. The weights and the centring of the LayerNorms count as parts of the matrices that read.
They are those of TransformerLens's ``all_composition_scores``, which leaves LayerNorms out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.heads import Head
from circuits.model.block import is_layer_norm
from circuits.model.transformer import Transformer


@dataclass(frozen=True)
class CompositionScores:
    """The composition scores of all pairs of heads.

    Attributes:
        scores: for ``Q``, ``K`` and ``V`` the score of every sender with every receiver,
            ``[layer, head, receiving layer, receiving head]``.
    """

    scores: Mapping[str, Float[Tensor, "layer head to_layer to_head"]]

    def of(self, which: str, sender: Head, receiver: Head) -> float:
        """Return the score of a pair of heads in one input of the receiver."""
        return float(self.scores[which][(*sender, *receiver)])

    def rank(self, which: str, sender: Head, receiver: Head) -> float | None:
        """Return the share of all other pairs that could compose (sender below receiver) with a lower score.

        It is None if there is no other pair.
        """
        layers = torch.arange(len(self.scores[which]))
        could = (layers[:, None] < layers).repeat_interleave(self.scores[which].shape[1], dim=1)
        could = could[:, None].expand(-1, self.scores[which].shape[1], -1)
        scores = self.scores[which].flatten(2)[could]
        lower = (scores < self.scores[which][(*sender, *receiver)]).sum()
        return float(lower / (len(scores) - 1)) if len(scores) > 1 else None


@torch.no_grad()
def composition_scores(model: Transformer) -> CompositionScores:
    """Return the composition scores of all pairs of heads, in products of size d_head only."""
    read = {part: torch.stack([_reading(block, part) for block in model.blocks]) for part in "QKV"}
    Q, K, V = (read[part].flatten(0, 1) for part in "QKV")  # [head, d_model, d_head]
    O = torch.stack([block.attn.W_O.float() for block in model.blocks]).flatten(0, 1)  # noqa: E741
    right = {part: torch.linalg.qr(matrix).R for part, matrix in zip("QKV", (Q, K, V), strict=True)}
    out = torch.linalg.qr(O.transpose(1, 2)).R
    ends = {"Q": (Q, right["K"]), "K": (K, right["Q"]), "V": (V, out)}  # what reads, and the rest of the product
    size = torch.linalg.matrix_norm(right["V"] @ out.transpose(1, 2))
    scores = {}
    for which, (reads, rest) in ends.items():
        product = torch.einsum("avw,awd,bdx,byx->abvy", right["V"], O, reads, rest)
        own = torch.linalg.matrix_norm(torch.linalg.qr(reads).R @ rest.transpose(1, 2))
        found = torch.linalg.matrix_norm(product) / (size[:, None] * own)
        n = model.cfg.n_layers
        scores[which] = found.reshape(n, -1, n, found.shape[1] // n).cpu()
    return CompositionScores(scores)


def _reading(block: Any, part: str) -> Float[Tensor, "head d_model d_head"]:
    """Return a block's W_Q, W_K or W_V with the weight and the centring of the LayerNorm before it."""
    weight = getattr(block.attn, f"W_{part}").float()  # half precision has no factorisation
    weight = weight.repeat_interleave(len(block.attn.W_O) // len(weight), dim=0)  # heads may share keys and values
    if is_layer_norm(block.ln1):
        weight = weight * block.ln1.w.float()[:, None]
        weight = weight - weight.mean(dim=1, keepdim=True)
    return weight

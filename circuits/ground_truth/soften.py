"""Soft attention: a compiled head that attends to its target with less than all of its attention.

A head of ``compile_circuit`` finds its own instance because the scores of common tokens are high (``MATCH``). Lower
scores leave some attention elsewhere:

    soften    all scores are lower: attention leaks to other instances, and a little to all other positions
    leak      only the scores of common tokens are lower: attention leaks to the same role of other instances

The head then writes more (its output is divided by the attention), so that its target's tokens still arrive as 1.
"""

import math
from collections.abc import Iterable

import torch

from circuits.ground_truth.compile import MATCH
from circuits.heads import Head
from circuits.model.transformer import Transformer


def soften(model: Transformer, heads: Iterable[Head], attention: float, n_instances: int) -> None:
    """Lower all scores of some heads of a compiled model, in place.

    Args:
        model: a model of ``compile_circuit``.
        heads: the heads.
        attention: the attention to the target that is left, between 1 / n_instances and 1, if one token is common.
        n_instances: the number of instances in an example.
    """
    for head in heads:
        _lower(model, head, attention, n_instances, slice(None))


def leak(model: Transformer, heads: Iterable[Head], attention: float, n_instances: int) -> None:
    """Lower the scores of common tokens in some heads of a compiled model, in place; arguments as in ``soften``."""
    for head in heads:
        _lower(model, head, attention, n_instances, slice(0, model.cfg.d_vocab))


@torch.no_grad()
def _lower(model: Transformer, head: Head, attention: float, n_instances: int, rows: slice) -> None:
    """Lower the scores that some rows of the query matrix give (first come the tokens), and raise the output."""
    score = math.log(attention * (n_instances - 1) / (1 - attention))
    attn = model.blocks[head.layer].attn
    attn.W_Q[head.index, rows] *= score / MATCH
    attn.W_O[head.index] /= attention

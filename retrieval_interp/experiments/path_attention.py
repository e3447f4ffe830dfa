"""Average attention along the paths that a transformer could have."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.attention import role_attention
from circuits.circuit import AttentionPath, Head
from circuits.model.layers import attention_patterns
from circuits.model.transformer import Transformer
from circuits.roles import Roles
from circuits.task import Examples


def possible_paths(roles: Roles, n_layers: int, n_heads: int) -> tuple[AttentionPath, ...]:
    """Return for every head the path to the position before, and all paths between roles that the mask allows."""
    heads = [Head(layer, index) for layer in range(n_layers) for index in range(n_heads)]
    ends = (("*", "previous"), *roles.pairs)
    return tuple(AttentionPath(head, source, target) for head in heads for source, target in ends)


def path_attention(model: Transformer, examples: Examples, paths: Sequence[AttentionPath]) -> Float[Tensor, " path"]:
    """Return the average attention along each path, over examples and instances.

    For a previous-token path, this is the average attention to the position before, over all positions but the first,
    which can only attend to itself.
    """
    where = {name: place for place, name in enumerate(examples.roles.names)}
    between = role_attention(model, examples)
    before = {}
    if any(path.source == "*" for path in paths):
        for layer, pattern in attention_patterns(model, examples):
            tokens = examples.roles.tokens(pattern.shape[-1])
            to_the_one_before = pattern.diagonal(-1, -2, -1).transpose(0, 1)
            before[layer] = to_the_one_before[:, tokens[:, 1:] & tokens[:, :-1]].mean(dim=1)
    along = [
        before[path.head.layer][path.head.index]
        if path.source == "*"
        else between[path.head.layer, path.head.index, where[path.source], where[path.target]]
        for path in paths
    ]
    return torch.stack(along)

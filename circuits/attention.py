"""Average attention: from role to role within an instance, and from position to position."""

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Head
from circuits.entrance import entrance
from circuits.model.layers import attention_patterns
from circuits.model.transformer import Transformer, sequences_at_once
from circuits.roles import Roles
from circuits.task import Examples

ATTENTION_EXAMPLES = 256  # examples for average attention, by default


@entrance
def role_attention(
    model: Transformer, examples: Examples, group: str | None = None
) -> Float[Tensor, "layer head query_role key_role *label"]:
    """Return the average attention from role to role within an instance, over examples and instances.

    A row sums to less than 1 if a head attends to other instances or to positions without a role.

    With a group, there is an average for every label at the key role, NaN if no instance has the label there. An
    average over all labels would hide a head that attends only for some of them.

    Raises:
        BadInput: there is no such group.
    """
    cfg, roles = model.cfg, examples.roles
    of_role = [torch.zeros_like(roles[role]) if group is None else roles.group(group, role) for role in roles.names]
    of_label = torch.nn.functional.one_hot(torch.stack(of_role, dim=2)).float()  # [batch, instance, role, label]
    of_label = of_label.to(examples.inputs.device)
    total = of_label.new_zeros(cfg.n_layers, cfg.n_heads, of_label.shape[2], *of_label.shape[2:])
    for part, batch, layer, pattern in patterns(model, examples):
        at = batch.roles.positions.transpose(1, 2)  # [batch, instance, role]
        example = torch.arange(len(at), device=at.device)[:, None, None, None]
        between = pattern[example, :, at[..., :, None], at[..., None, :]]  # [batch, instance, query, key, head]
        total[layer] += torch.einsum("bcqkh,bckl->hqkl", between, of_label[part].to(between))
    average = total / of_label.sum(dim=(0, 1))
    return average[..., 0] if group is None else average


def patterns(
    model: Transformer, examples: Examples
) -> Iterator[tuple[slice, Examples, int, Float[Tensor, "batch head query key"]]]:
    """Yield which examples a batch has, the batch, a layer, and its patterns, until all examples had all layers."""
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    for start in range(0, len(examples), at_once):
        part = slice(start, start + at_once)
        batch = examples.take(part)
        for layer, pattern in attention_patterns(model, batch):
            yield part, batch, layer, pattern


def position_attention(model: Transformer, examples: Examples) -> Float[Tensor, "layer head query key"]:
    """Return the average attention from position to position, over examples; positions count from the first token.

    With padding, a position is averaged over the examples that are that long.
    """
    total = torch.zeros(model.cfg.n_layers, model.cfg.n_heads, *2 * [examples.inputs.shape[1]])
    for _, batch, layer, pattern in patterns(model, examples):
        total[layer] += batch.roles.aligned(pattern).float().sum(dim=0).cpu()
    return total / examples.roles.times(examples.inputs.shape[1]).clamp(min=1)[:, None].cpu()


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

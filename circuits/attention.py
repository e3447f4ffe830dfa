"""Average attention from role to role within an instance."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.entrance import entrance
from circuits.model.layers import attention_patterns
from circuits.model.transformer import Transformer, sequences_at_once
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

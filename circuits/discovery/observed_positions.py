"""Fixed positions that a head attends to, chosen by the label of another role.

If a symbol stands at one slot, a head may read it from another position, for example from the next position, to which a
previous-token head has copied it. The label of the symbol's role determines this position. Such a row is not a path,
because it does not lead to a role of the instance.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from circuits.circuit import Head
from circuits.mechanisms.one_hot import ON, Condition, Ends
from circuits.model.batching import sequences_at_once
from circuits.model.patterns import attention_patterns
from circuits.model.transformer import Transformer
from circuits.model.windows import windowed
from circuits.roles import Roles
from circuits.task import Examples

Left = Mapping[Head, Mapping[str, Bool[Tensor, "example instance"]]]


def observed_positions(
    model: Transformer, examples: Examples, left: Left, group: str
) -> tuple[dict[Head, dict[Ends, Condition]], dict[Head, dict[Ends, Condition]]]:
    """Find rows that lead from a role to fixed positions, by the labels of another role.

    Args:
        model: the model.
        examples: the examples that attention is averaged over.
        left: for every head and source, the instances on which no path holds, ``[example, instance]``.
        group: the group of the labels.

    Returns:
        For every head its rows to two or more positions, by source and position (``position 3``), each with its
        condition; and the rows to a single position, for sources that have no others.

    Raises:
        BadInput: the examples do not have the group.
    """
    roles = windowed(model, examples.roles)
    labels = torch.stack([roles.group(group, role) for role in roles.names], dim=2)
    of_label = torch.nn.functional.one_hot(labels).float()  # [example, instance, role, label]
    total = {(head, source): torch.zeros(()) for head, own in left.items() for source in own}
    at_once = sequences_at_once(model.cfg.n_heads, examples.inputs.shape[1])
    for start in range(0, len(examples), at_once):
        part = slice(start, start + at_once)
        batch = examples.take(part)
        example = torch.arange(len(batch), device=labels.device)[:, None]
        for layer, padded in attention_patterns(model, batch):
            pattern = batch.roles.aligned(padded)
            for head, source in (ends for ends in total if ends[0].layer == layer):
                there = left[head][source][part].to(labels.device).float()
                rows = pattern[example, head.index, batch.roles.group("position", source)].float()
                attended = torch.einsum("bck,bcrl,bc->rlk", rows, of_label[part], there)
                total[head, source] = total[head, source] + attended.cpu()
    found: dict[Head, dict[Ends, Condition]] = {head: {} for head in left}
    single: dict[Head, dict[Ends, Condition]] = {head: {} for head in left}
    for (head, source), attended in total.items():
        there, own = left[head][source], roles.in_layer(head.layer)
        times = torch.einsum("bcrl,bc->rl", of_label.cpu(), there.float())
        attention = attended / times.clamp(min=1)[..., None]
        several = _rows(source, attention, there, own, group, fewest=2)
        found[head] |= several
        single[head] |= {} if several else _rows(source, attention, there, own, group, fewest=1)
    return found, single


def _rows(
    source: str,
    attention: Float[Tensor, "role label key"],
    left: Bool[Tensor, "example instance"],
    roles: Roles,
    group: str,
    fewest: int,
) -> dict[Ends, Condition]:
    """Return the rows of one source of a head, by the labels of the role that explain most of its attention.

    There are none if they lead to less than ``fewest`` positions.

    A role is skipped if its labels determine the position of the source: attention may then follow that position.
    """
    best: dict[Ends, Condition] = {}
    most = 0.0
    for at in roles.before(source):
        shares, places = attention[roles.names.index(at)].max(dim=-1)
        labels, stands = roles.group(group, at).cpu(), roles.group("position", source).cpu()
        if torch.stack([labels, stands]).flatten(1).unique(dim=1).shape[1] == labels.unique().numel():
            continue
        on = [label for label, share in enumerate(shares.tolist()) if share > ON]
        rows = {
            place: Condition(group, at, tuple(label for label in on if places[label] == place))
            for place in {int(places[label]) for label in on}
        }
        there = {place: condition.holds(roles).cpu() for place, condition in rows.items()}
        near = {place: (stands >= place) & roles.sees(stands, torch.tensor(place)) for place in rows}
        possible = all((left & near[place])[own].all() for place, own in there.items())
        told = sum(shares[label].item() * (left & (labels == label)).sum().item() for label in on)
        if len(rows) >= fewest and possible and told > most:
            best, most = {(source, f"position {place}"): condition for place, condition in rows.items()}, told
    return best

"""What roles look at in every head: the average attention from role to role, and by position for the rest."""

from collections.abc import Mapping

import torch

from circuits.attention import patterns
from circuits.averages import Averages
from circuits.circuit import Head
from circuits.flow.fixed_paths import strongest
from circuits.mechanisms.fixed_pattern import FixedPattern
from circuits.mechanisms.one_hot import OneHot
from circuits.mechanisms.soft import Soft
from circuits.model.transformer import Transformer, windowed
from circuits.roles import Roles
from circuits.settings import current
from circuits.task import Examples


def soft_paths(model: Transformer, examples: Examples) -> dict[Head, Soft]:
    """Return a soft mechanism for every head in which a role gives another one ``likely`` of its attention or more.

    Attention is averaged over the instances in which the source can see the target. Targets that get ``slight`` or more
    of it have a weight of their own; the rest of a row is the average of what is left, by position, within a layout.
    """
    cfg, roles, layouts = model.cfg, windowed(model, examples.roles), examples.roles.layouts("averages").cpu()
    names, n_positions = roles.distinct, examples.inputs.shape[1]
    pairs = [(source, target) for source in names for target in names if source != target]
    seen = {ends: roles.sees(roles[ends[0]], roles[ends[1]]).cpu() for ends in pairs}
    pairs = [ends for ends in pairs if seen[ends].any()]
    times = torch.bincount(layouts).clamp(min=1)[:, None, None]
    made: dict[Head, Soft] = {}
    whole = torch.zeros(cfg.n_layers, len(times), n_positions, n_positions, cfg.n_heads)
    along, totals = torch.zeros(len(pairs), *whole.shape), torch.zeros(len(pairs), cfg.n_layers, cfg.n_heads)
    for part, batch, layer, pattern in patterns(model, examples):
        from_first = batch.roles.aligned(pattern, -2, -1).float().cpu().permute(0, 2, 3, 1)
        whole[layer].index_add_(0, layouts[part], from_first)
        for place, ends in enumerate(pairs):
            example, instance = seen[ends][part].nonzero(as_tuple=True)
            at, to = (batch.roles.group("position", role).cpu()[example, instance] for role in ends)
            totals[place, layer] += from_first[example, at, to].sum(dim=0)
            example, at, to = torch.stack([example, at, to]).unique(dim=1)  # instances may share both
            of = layouts[part][example], at, to
            along[place, layer].index_put_(of, from_first[example, at, to], accumulate=True)
    weights = totals / torch.stack([seen[ends].sum() for ends in pairs])[:, None, None]
    for layer, index in torch.cartesian_prod(torch.arange(cfg.n_layers), torch.arange(cfg.n_heads)).tolist():
        of_head = {ends: round(float(weights[place, layer, index]), 3) for place, ends in enumerate(pairs)}
        if max(of_head.values(), default=0.0) < current().likely:
            continue
        taken = {ends: min(weight, 1.0) for ends, weight in of_head.items() if weight >= current().slight}
        own = [along[place, layer, ..., index] for place, ends in enumerate(pairs) if ends in taken]
        average = ((whole[layer, ..., index] - torch.stack(own).sum(dim=0)) / times).clamp(min=0)
        made[Head(layer, index)] = Soft(taken, FixedPattern(average if len(average) > 1 else average[0], "mean"))
    return made


def one_hot_paths(soft: Mapping[Head, Soft], averages: Averages, roles: Roles) -> dict[Head, OneHot]:
    """Return one-hot mechanisms of soft heads: a source attends to its strongest target, if it is likely.

    Heads without such a target that the source can see in every instance have none.
    """
    hot: dict[Head, OneHot] = {}
    for head, mechanism in soft.items():
        seen = mechanism.seen(roles.in_layer(head.layer))
        best = {source: strongest(to, current().likely) for source, to in seen.items()}
        if rows := {source: target for source, target in best.items() if target}:
            hot[head] = OneHot(rows, averages.patterns[head])
    return hot

"""How a model does with one layer fewer than information flow asks for: by position, and where its symbols are.

The attention of the first layer says what is fetched by position. Interchange after the first layer says at which
roles the last symbol has arrived.
"""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float

from circuits.model.transformer import Transformer
from circuits.problem import Problem
from circuits.utils.lazy import torch
from retrieval_interp.experiments.depth_sweep import FRESH_SEED
from retrieval_interp.tasks.task import Task

EXAMPLES = 512  # fresh examples for the attention; half of them for interchange
ATTENDED, NOT_ATTENDED = 0.5, 0.25  # of a head's attention


def attention_to_pairs(
    model: Transformer, task: Task
) -> tuple[Float[torch.Tensor, "head asked pair"], Float[torch.Tensor, "head asked"]]:
    """Return the query's average attention in the first layer, by the place of the pair in question.

    Returns:
        the attention to the second member of every pair, and to the first member of the pair in question. Pairs are
        those places at which a pair of the first hop can stand, in their order.
    """
    from circuits.model.patterns import attention_patterns

    examples = task.examples(EXAMPLES, FRESH_SEED)
    roles = examples.roles
    query, first, second = (roles[name] for name in ("query", "pair1.first", "pair1.second"))
    _, patterns = next(attention_patterns(model, examples))
    rows = patterns.gather(2, query[:, None, :, None].expand(-1, patterns.shape[1], -1, patterns.shape[3]))
    places, asked = second.unique(return_inverse=True)
    mine = [rows.transpose(1, 2)[asked == place] for place in range(len(places))]  # [instance, head, key]
    firsts = [first[asked == place] for place in range(len(places))]
    found = [own.gather(2, at[:, None, None].expand(-1, own.shape[1], 1)) for own, at in zip(mine, firsts, strict=True)]
    seconds = torch.stack([own[:, :, places].mean(dim=0) for own in mine], dim=1)
    return seconds, torch.stack([own.squeeze(2).mean(dim=0) for own in found], dim=1)


class Fetched(NamedTuple):
    """What the first layer fetches: ``fixed``, ``gated``, ``n_pairs`` and ``found`` of an ``Outcome``."""

    fixed: int
    gated: int
    n_pairs: int
    found: int


def fetched(seconds: Float[torch.Tensor, "head asked pair"], first: Float[torch.Tensor, "head asked"]) -> Fetched:
    """Return how many pairs the first layer fetches by position, and how many heads find the pair in question.

    Args:
        seconds: the query's attention to second members.
        first: the query's attention to the first member of the pair in question.
    """
    n_pairs = seconds.shape[2]
    always = seconds.amin(dim=1) > ATTENDED  # [head, pair]
    otherwise = seconds.masked_fill(torch.eye(n_pairs, dtype=torch.bool), 0).amax(dim=1)
    gated = (seconds.diagonal(dim1=1, dim2=2) > ATTENDED) & (otherwise < NOT_ATTENDED)
    fixed = always.any(dim=0)
    found = first.amin(dim=1) > ATTENDED
    return Fetched(int(fixed.sum()), int((gated.any(dim=0) & ~fixed).sum()), n_pairs, int(found.sum()))


class LastLayer(NamedTuple):
    """How a model of two layers brings x2 to the query.

    Attributes:
        known: the share of x2's answers that follow if x1 or x2 is exchanged after the first layer, for every role, as
            ``x2 at pair2.second``.
        attention: the highest average attention of a head of the last layer from the query, for every role.
    """

    known: dict[str, float]
    attention: dict[str, float]


def last_layer(model: Transformer, task: Problem) -> LastLayer:
    """Return where x1 and x2 are after the first layer, and to which roles the query attends in the last one."""
    from circuits.attention import role_attention
    from circuits.interchange.interchange import interchange

    result = interchange(model, task, n_examples=EXAMPLES // 2, seed=FRESH_SEED, progress=lambda share: None)
    names, of_x2 = [one.name for one in result.variables], result.components.index("x2")
    accuracy = {name: result.accuracy[place, 1, :, of_x2].tolist() for place, name in enumerate(names)}
    known = {f"{x} at {role}": accuracy[x][n] for x in ("x1", "x2") for n, role in enumerate(result.roles)}
    examples = task.examples(EXAMPLES, FRESH_SEED)
    between = role_attention(model, examples)[-1, :, examples.roles.names.index("query")]  # [head, role]
    return LastLayer(known, dict(zip(examples.roles.names, between.amax(dim=0).tolist(), strict=True)))

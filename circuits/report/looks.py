"""Where the heads of a circuit look in single instances: along a path, or where no path leads."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from circuits.circuit import Circuit, Head
from circuits.errors import BadInput
from circuits.flow.fixed_paths import fixed_paths
from circuits.mechanisms.mechanism import Intact, head_pattern
from circuits.mechanisms.one_hot import OneHot
from circuits.model.layers import attention_patterns
from circuits.model.transformer import Transformer
from circuits.results import Result
from circuits.roles import Roles
from circuits.settings import current, has_many_heads
from circuits.task import Examples, Task
from circuits.tracing.edges import EMBED
from circuits.tracing.patched_head import PatchedHead
from circuits.tracing.unablated import Unablated, senders_below

KINDS = ("", "path", "weak", "fixed", "seen", "row", "other")
ANOTHER_WAY = KINDS.index("row")  # and what comes after it
# Where a head looks from a role: the position, the attention, and the index in ``KINDS``; 0 if nothing is told.
Look = tuple[Int[Tensor, "example instance"], Float[Tensor, "example instance"], Int[Tensor, "example instance"]]
Looks = dict[tuple[Head, str], Look]


class Arrow(Result):
    """A look of a head. Its kind is ``path`` (a path says so), ``weak`` (it does, but no place gets half), ``fixed``
    (a path of a fixed pattern), ``seen`` (the head is intact), ``row`` (no path says so, but a row to a position or of
    averages), or ``other`` (the circuit says otherwise).
    """

    head: Head
    source: int
    target: int
    attention: float
    kind: str


def looked(model: Transformer, circuit: Circuit, examples: Examples) -> Looks:
    """Return where the named heads look: those with paths, also of fixed patterns, and those that are intact."""
    roles, ways = examples.roles, dict[tuple[Head, str], list[tuple[Tensor, Tensor]]]()
    for path, on in fixed_paths(circuit, roles).items():
        there = torch.ones_like(roles[path.source], dtype=torch.bool) if on is None else on.holds(roles)
        ways.setdefault((path.head, path.source), []).append((roles[path.target], there))
    for head in circuit.looking:
        kind = circuit.heads[head]
        rows = kind.rows if isinstance(kind, OneHot) else kind.paths
        ways |= {(head, source): [] for source in [one for one, _ in rows if one in roles.names] or roles.distinct}
        for source, target in (ends for ends in kind.paths if {*ends} <= {*roles.names}):
            ways[head, source].append((roles[target], kind.holds(source, target, roles)))
    looks: Looks = {}
    for layer, pattern in attention_patterns(model, examples):
        for head, role in (where for where in sorted(ways) if where[0].layer == layer):
            kind = circuit.heads[head]
            says = None
            if kind != Intact():
                says = head_pattern(head, kind, roles.in_layer(layer), pattern.shape[-1]).expand(len(pattern), -1, -1)
            looks[head, role] = _look(pattern[:, head.index], says, role, roles, ways[head, role], kind.varies)
    return looks


def _look(
    pattern: Float[Tensor, "example query key"],
    says: Float[Tensor, "example query key"] | None,
    role: str,
    roles: Roles,
    paths: Sequence[tuple[Tensor, Tensor]],
    varies: bool,
) -> Look:
    """Return where a head looks from a role; ``says`` is its pattern in the circuit, None if it is intact."""
    example, at, enough = torch.arange(len(pattern), device=pattern.device)[:, None], roles[role], current().attended
    own = pattern[example, at]
    share, to = own.max(dim=2)
    kind, clear = torch.zeros_like(to), share >= enough
    if says is None:
        named = (to[..., None] == roles.positions.flatten(1)[:, None]).any(dim=2)
        kind[clear & named] = KINDS.index("seen")
    elif varies:
        by_row = says[example, at].gather(2, to[..., None])[..., 0] >= enough
        kind[clear] = KINDS.index("other")
        kind[clear & by_row] = KINDS.index("row")
    least, held = torch.full_like(share, current().slight), KINDS.index("path" if varies else "fixed")
    for target, holds in paths:  # of several, the one that gets most is told
        there = own.gather(2, target[..., None])[..., 0]
        told = holds & ((there >= enough) | ~clear & (there >= least))
        kind = torch.where(told, torch.where(there >= enough, held, KINDS.index("weak")), kind)
        to, share, least = (torch.where(told, new, old) for new, old in ((target, to), (there, share), (there, least)))
    kind[to == at] = 0  # nothing moves
    return to.cpu(), share.cpu(), kind.cpu()


def written_by(
    model: Transformer, task: Task, examples: Examples, looks: Looks
) -> dict[tuple[Head, str, int, int], Arrow]:
    """Return who had written what a head fetches from a role where no path leads, by example and instance.

    This is path patching of the values (V): what one head wrote at the place is exchanged with what it wrote there in
    each other example. The head whose exchange raises the loss most is named, if this is at least half of what the
    exchange of all senders does. Not for models with many heads, nor for those whose parts do not add up.
    """
    found: dict[tuple[Head, str, int, int], Arrow] = {}
    run, roles = None, examples.roles
    for (head, role), (to, _, kind) in looks.items():
        there = (kind >= ANOTHER_WAY).to(roles.positions.device)
        if not there.any() or has_many_heads(model.cfg) or len(examples) < 2:
            continue
        run = run or Unablated(model, task, examples)
        at, senders = to.to(there.device), senders_below(head.layer, model.cfg)
        reader, residual = PatchedHead(run, head, roles[role]), run.residuals[head.layer][run.example, at]
        lost = torch.zeros(1 + len(senders), *at.shape)  # of all senders, then of each
        for donor in range(1, len(examples)):
            try:
                new = run.written(head.layer, at.roll(donor, 0)).roll(-donor, 1) - run.written(head.layer, at)
            except BadInput:
                return {}
            z = reader.patched("V", at, residual + torch.cat([new.sum(dim=0)[None], new]) * there[..., None])[1]
            for n, i in there.nonzero().tolist():
                where = torch.tensor([n], device=at.device), roles[role][n, i][None]
                lost[:, n, i] += torch.stack(
                    [(reader.losses(where, one[n, i][None]) - run.losses)[n] for one in z]
                ).cpu()
        for n, i in there.nonzero().tolist():
            of_head = {place: one for place, one in enumerate(senders, 1) if one != EMBED and not one.endswith("MLP")}
            heads = [(lost[place, n, i].item(), Head.of(one)) for place, one in of_head.items()]
            most, writer = max(heads, default=(0.0, head))
            if most >= lost[0, n, i].item() / 2 > 0:
                pattern = run.cache[f"blocks.{writer.layer}.attn.hook_pattern"][n, writer.index, at[n, i]]
                share, place = pattern.max(dim=0)
                ends = {"source": int(at[n, i]), "target": int(place)}
                found[head, role, n, i] = Arrow(head=writer, **ends, attention=round(share.item(), 2), kind="other")
    return found

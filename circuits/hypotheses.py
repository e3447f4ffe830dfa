"""What a head might do, read off its attention (paper, Appendix E, steps 1 and 2)."""

from collections.abc import Mapping, Sequence

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Head
from circuits.mechanisms import ELSEWHERE, SIMPLE, Mechanism
from circuits.one_hot import OneHot
from circuits.roles import Roles

NOTICEABLE = 0.2  # average attention from role to role that makes a path worth a test


def noticeable_paths(
    attention: Float[Tensor, "layer head query_role key_role"], roles: Roles, head: Head
) -> dict[str, tuple[str, ...]]:
    """For every role, the earlier roles of its own chain that it noticeably attends to, most attended first."""
    own = attention[head.layer, head.head]
    seen = {(s, t): own[roles.names.index(s), roles.names.index(t)].item() for s, t in roles.pairs}
    found: dict[str, list[str]] = {}
    for (source, target), strength in sorted(seen.items(), key=lambda item: -item[1]):
        if strength >= NOTICEABLE:
            found.setdefault(source, []).append(target)
    return {source: tuple(found[source]) for source in roles.names if source in found}


def strongest(paths: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The row of every role that attends anywhere: its most attended target."""
    return {source: targets[0] for source, targets in paths.items()}


def candidates(rows: Mapping[str, str]) -> list[Mechanism]:
    """What a head with these rows, or none, might do: the simple mechanisms, then its one-hot ones."""
    return [*SIMPLE.values(), *(with_any_elsewhere(rows) if rows else ())]


def with_any_elsewhere(rows: Mapping[str, str]) -> tuple[OneHot, ...]:
    """The one-hot mechanism of these rows, with each choice for the rows on no path."""
    return tuple(OneHot(rows, elsewhere) for elsewhere in ELSEWHERE)

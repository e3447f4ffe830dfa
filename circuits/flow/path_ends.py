"""The roles that a path joins, by a task's layout."""

from circuits.circuit import AttentionPath, Circuit
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import PREVIOUS
from circuits.task import Layout


def path_ends(circuit: Circuit, path: AttentionPath, layout: Layout) -> tuple[tuple[str, str], ...]:
    """Return the sources and targets of a path; a ``Previous`` head joins all pairs."""
    if (path.source, path.target) == PREVIOUS:
        return layout.joined
    for role in (path.source, path.target):
        if role not in layout.start:
            raise BadInput(f"{path}: unknown role {role!r}; the roles are {', '.join(layout.roles)}")
    if layout.roles.index(path.target) > layout.roles.index(path.source):
        raise BadInput(f"{path} is against the causal mask: {path.target!r} comes after {path.source!r}")
    source, target = layout.start[path.source], layout.start[path.target]
    beside = zip(layout.alike.get(path.source, ()), layout.alike.get(path.target, ()), strict=False)
    return ((path.source, path.target), *(beside if source & target & layout.places else ()))

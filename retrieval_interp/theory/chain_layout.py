"""The layout of one chain of the retrieval problem, for information flow."""

from collections.abc import Sequence

from circuits.errors import BadInput
from circuits.task import Layout


def chain_layout(n_steps: int, order: Sequence[int] | None = None) -> Layout:
    """Return the layout of one chain, x0 -> x1 ... -> xD, with the query after all pairs.

    Args:
        n_steps: D, the number of steps.
        order: the steps in the order of their pairs; by default the last step comes first.

    Raises:
        BadInput: D is below 1, or the order is not an order of the steps 1 to D.
    """
    if n_steps < 1:
        raise BadInput(f"{n_steps} steps; expected at least 1")
    order = range(n_steps, 0, -1) if order is None else order
    if sorted(order) != [*range(1, n_steps + 1)]:
        raise BadInput(f"the order {', '.join(map(str, order))}; expected each of the steps 1 to {n_steps} once")
    start: dict[str, frozenset[str]] = {}
    for k in order:
        start[f"pair{k}.first"] = frozenset({f"x{k - 1}", f"p{k}"})
        start[f"pair{k}.second"] = frozenset({f"x{k}", f"p{k}"})
    return Layout({**start, "query": frozenset({"x0", "p0"})}, frozenset(f"p{k}" for k in range(n_steps + 1)))

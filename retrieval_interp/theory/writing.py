"""Writing as depth: how many hops a transformer does that writes symbols and reads them again.

A query that knows x0 comes to x(2^(L-1) - 1) in one pass of L layers, in either step order (``depth.py``). Written
down, that symbol stands at a position of its own: a query once more, with the rest of the chain before it, so that it
comes as far again. Every written symbol adds as many hops. Other orders of the pairs may do more.
"""

from __future__ import annotations

from collections.abc import Iterable

from circuits.errors import BadInput
from circuits.utils.lazy import pandas as pd


def hops(n_layers: int, n_written: int = 0) -> int:
    """The hops that L layers do with the causal mask, if they write so many symbols on the way: (s + 1)(2^(L-1) - 1).

    The pairs stand in either step order.

    Raises:
        BadInput: there is no layer, or fewer than no symbol.
    """
    if not 1 <= n_layers <= 64 or n_written < 0:
        raise BadInput(
            f"{n_layers} layers and {n_written} written symbols; expected 1 to 64 layers, and 0 symbols or more"
        )
    return (n_written + 1) * (2 ** (n_layers - 1) - 1)


def fewest_written(n_steps: int, n_layers: int) -> int | None:
    """The fewest symbols that L layers must write before they answer with xD; None if one layer is all there is."""
    at_once = hops(n_layers)
    if n_steps < 1:
        raise BadInput(f"{n_steps} hops; expected at least 1")
    return -(-n_steps // at_once) - 1 if at_once else None


def fewest_written_table(wanted: Iterable[int], most_layers: int = 6) -> pd.DataFrame:
    """The fewest symbols that must be written, by hops (rows) and layers (columns); a single layer never gets on."""
    rows, layers = [*wanted], range(2, most_layers + 1)
    return pd.DataFrame([[fewest_written(d, n) for n in layers] for d in rows], index=rows, columns=layers)


def hops_table(most_layers: int = 6, most_written: int = 6) -> pd.DataFrame:
    """Hops by layers (rows) and written symbols (columns)."""
    layers, written = range(1, most_layers + 1), range(most_written + 1)
    return pd.DataFrame([[hops(n, s) for s in written] for n in layers], index=layers, columns=written)

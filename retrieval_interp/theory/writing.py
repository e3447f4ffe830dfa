"""A scratchpad instead of depth: the number of hops of a transformer that writes symbols and reads them again.

In one pass of L layers, a query that knows x0 comes to x(2^(L-1) - 1), in either step order (``depth.py``). If this
symbol is written, it has a position of its own and acts as a new query for the rest of the chain, so it comes as far
again. Every written symbol adds the same number of hops. Other orders of the pairs may allow more hops.

A *thought* is a position that starts with all that the one before it knows at the end, instead of a symbol. In the
notation of ``depth.py``, the query comes to piece 2^L - 1, the place of pair 2^(L-1). Let a thought start with pieces
up to such a place, a = 2j - 1. It finds the second member of pair j in the first layer and comes to piece a + 1. If it
knows pieces up to b after t >= 1 layers, it finds the second member of pair floor(b/2) + 1 in the next one, and comes
to piece 2 floor(b/2) + 1 + 2^t. With two layers or more it so comes to a + 2^L: it has made 2^(L-1) hops, one more
than a written symbol, because it knows where to go on. A pause, which starts with nothing, comes as far as the query.
"""

from __future__ import annotations

from collections.abc import Iterable

from circuits.errors import BadInput
from circuits.utils.lazy import pandas as pd


def hops(n_layers: int, n_written: int = 0) -> int:
    """Return the number of hops of L layers with the causal mask and s written symbols: (s + 1)(2^(L-1) - 1).

    It is the same for the last step first and for the first step first.

    Raises:
        BadInput: the number of layers is not 1 to 64, or the number of symbols is negative.
    """
    if not 1 <= n_layers <= 64 or n_written < 0:
        raise BadInput(f"{n_layers} layers, {n_written} written symbols; expected 1 to 64 layers, 0 symbols or more")
    return (n_written + 1) * (2 ** (n_layers - 1) - 1)


def fewest_written(n_steps: int, n_layers: int) -> int | None:
    """Return the fewest symbols that L layers must write before they answer with xD; None for a single layer.

    Raises:
        BadInput: a number is out of range.
    """
    at_once = hops(n_layers)
    if n_steps < 1:
        raise BadInput(f"{n_steps} hops; expected at least 1")
    return -(-n_steps // at_once) - 1 if at_once else None


def fewest_written_table(wanted: Iterable[int], most_layers: int = 6) -> pd.DataFrame:
    """Return the fewest symbols that must be written, by hops (rows) and layers (columns; one is never enough)."""
    rows, layers = [*wanted], range(2, most_layers + 1)
    return pd.DataFrame([[fewest_written(d, n) for n in layers] for d in rows], index=rows, columns=layers)


def hops_table(most_layers: int = 6, most_written: int = 6) -> pd.DataFrame:
    """Return the number of hops by layers (rows) and written symbols (columns)."""
    layers, written = range(1, most_layers + 1), range(most_written + 1)
    return pd.DataFrame([[hops(n, s) for s in written] for n in layers], index=layers, columns=written)

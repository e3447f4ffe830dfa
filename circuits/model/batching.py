"""The number of sequences that run at once. It bounds memory, whatever the number of circuits and examples."""

from __future__ import annotations

from typing import Any

from jaxtyping import Int

from circuits.utils.lazy import torch

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**13
# Entries of the attention patterns of a layer, or of the outputs, at once: 256 MiB in single precision.
ENTRIES_AT_ONCE = 2**26


def sequences_at_once(n_heads: int, n_positions: int, n_outputs: int = 1) -> int:
    """Return the number of sequences that run at once; ``n_outputs`` is the number of outputs at a position."""
    return max(1, min(POSITIONS_AT_ONCE, ENTRIES_AT_ONCE // max(n_heads * n_positions, n_outputs)) // n_positions)


def spread(n: int, most: int, n_positions: int, cfg: Any) -> Int[torch.Tensor, " few"]:
    """Return the indices of a few of ``n`` examples, from the first to the last: at most ``most``, at least two.

    There are fewer of long sequences and large vocabularies: their outputs take a quarter of ``ENTRIES_AT_ONCE``.
    """
    n_outputs = cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab
    few = max(2, min(most, ENTRIES_AT_ONCE // 4 // (n_positions * n_outputs)))
    return torch.linspace(0, n - 1, min(few, n)).long()

"""How much of a model runs at once, so that memory is bounded however many circuits and examples there are."""

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**13
# Entries of attention patterns, of all heads of a layer and all pieces at once: 256 MiB in single precision.
ENTRIES_AT_ONCE = 2**26


def sequences_at_once(n_heads: int, n_positions: int, n_pieces: int = 1) -> int:
    """How many sequences are in a piece, circuits times examples, where so many pieces run at once."""
    entries = ENTRIES_AT_ONCE // n_pieces
    return max(1, min(POSITIONS_AT_ONCE // n_positions, entries // (n_heads * n_positions**2)))

"""The number of sequences that run at once. It bounds memory, whatever the number of circuits and examples."""

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**13
# Entries of the attention patterns of a layer, or of the outputs, of all pieces at once: 256 MiB in single precision.
ENTRIES_AT_ONCE = 2**26


def sequences_at_once(n_heads: int, n_positions: int, n_pieces: int = 1, n_outputs: int = 1) -> int:
    """Return the number of sequences (circuits times examples) in a piece when ``n_pieces`` pieces run at once.

    ``n_outputs`` is the number of outputs at a position, such as the size of a vocabulary.
    """
    entries = ENTRIES_AT_ONCE // n_pieces
    return max(1, min(POSITIONS_AT_ONCE, entries // max(n_heads * n_positions, n_outputs)) // n_positions)

"""Many models trained at once, on one machine or on many, and what they have in common (paper, section 7)."""

"""Losses of circuits with their errors, on fresh examples, and decisions on them."""

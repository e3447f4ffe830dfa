"""Emergence of attention paths in training: measured, compared with the paper's observations, and drawn."""

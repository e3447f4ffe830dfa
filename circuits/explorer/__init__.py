"""Exploring a circuit in a notebook: ``explore(model, problem, circuit)``."""

from circuits.explorer.widgets import Explorer, explore

__all__ = ["Explorer", "explore"]

"""Exploring a circuit in a notebook: ``explore(model, problem, circuit)``."""

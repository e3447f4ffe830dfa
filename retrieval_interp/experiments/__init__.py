"""Experiments on trained models and in training.

- emergence.py: when each path emerges; observations.py says what that shows
- interventions.py: training with paths forced or forbidden
- depth_sweep.py: models of every depth, under every condition
- probe.py: after which layer a symbol can be read
- elimination.py: how a symbol comes to the query that no path leads to
- runs.py: many small runs, each a line of a file
"""

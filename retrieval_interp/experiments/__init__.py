"""Experiments on trained models and on training.

- emergence.py: when each attention path emerges in training; observations.py compares this with the paper
- depth_sweep.py: models of every depth trained under several conditions
- runs.py: many small training runs, each kept as one line of a file
"""

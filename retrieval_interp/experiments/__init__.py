"""Experiments on trained models and on training.

- emergence.py: when each attention path emerges in training; observations.py compares this with the paper
- depth_sweep.py: models of every depth trained under several conditions
- composition_study.py: how the heads of a circuit find their place; composition_page.py: its page
- equivalence_page.py: the circuits that are equivalent to a model's circuit, as a page
- runs.py: many small training runs, each kept as one line of a file
"""

"""Experiments on trained models and on training.

- emergence.py: when each attention path emerges in training; observations.py compares this with the paper
"""

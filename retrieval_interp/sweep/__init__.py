"""Sweeps: train many models, here or on a Ray cluster.

- plan.py: the models to train
- run.py: the training of one model, and of all
- cluster.py: the same on a Ray cluster
- figure4.py: their losses by depth, as a table and a figure
"""

"""Sweeps: train many models on this machine or on a cluster.

- plan.py, known_plans.py, job.py: the models to train
- run.py, local.py, cluster.py: the sweep, and its two engines
- training.py: the training of one model
- train_many.py: a sweep by one call
- store.py: the folder of runs
- runs_table.py: all runs as a table
"""

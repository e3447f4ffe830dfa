"""Many models, here or on a cluster, each kept whole or not at all.

- plan.py, job.py: which models
- run.py, local.py, cluster.py: where they are trained
- training.py: how one is trained
- store.py: what is kept of each
- runs_table.py: all runs as a table
"""

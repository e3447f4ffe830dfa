"""Sweeps: train many models (run.py) by a plan, here or on a Ray cluster, and compare them (figure4.py)."""

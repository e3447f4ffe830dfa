"""Sweeps: train many models (run.py) by a plan, and compare them (figure4.py)."""

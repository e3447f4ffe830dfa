"""Interchange interventions (Geiger et al. 2021) on models of the retrieval problem.

- interchange.py: which variable passes through which role, after which layer
- predicted.py: what a circuit's paths predict of that
"""

"""Null models: what chance alone would find.

- chance.py: against_chance, ChanceReport: random circuits, redundant paths, bootstrap intervals
- permuted_roles.py: null_loss: the same discovery with role names permuted
"""

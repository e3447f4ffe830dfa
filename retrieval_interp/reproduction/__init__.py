"""Reproduction: measure a stored report again.

- stored_report.py: reading a report
- reproduce.py: its settings, its circuit, and every number that differs
"""

"""Reports read and measured again.

- stored_report.py: a report as a file
- reproduce.py: every number that differs
"""

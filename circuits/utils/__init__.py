"""Utilities that do not depend on circuits: files, YAML, progress, lazy libraries."""

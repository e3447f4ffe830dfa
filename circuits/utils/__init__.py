"""What everything here uses, and what knows nothing of circuits: files, YAML, progress, cores, lazy libraries."""

"""From a transformer to its circuit.

- discovery.py: discover, Discovery
- observed_paths.py: paths that attention shows
- observed_positions.py: fixed positions that attention shows
- fitting.py: paths added, removed, and heads simplified, always with all heads replaced
"""

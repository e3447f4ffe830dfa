"""From a transformer to its circuit.

- discovery.py: discover, Discovery
- observed_paths.py: the paths that a head's attention shows
- observed_positions.py: the fixed positions that a head's attention shows
- fitting.py: add paths, remove paths, and simplify heads, with all heads replaced
- steering.py: give heads back what the content heads above them need
"""

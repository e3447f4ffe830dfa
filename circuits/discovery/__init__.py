"""From a transformer to its circuit.

- discovery.py: discover, Discovery
- observed_paths.py: the paths and fixed positions that a head's attention shows
- fitting.py: add paths, remove paths, and simplify heads, with all heads replaced
- steering.py: give heads back what the content heads above them need
"""

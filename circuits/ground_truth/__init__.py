"""Models whose circuit is known.

- compile.py: compile_circuit: write a transformer that has a given circuit
- compiled_edges.py: compiled_edges: by which senders its heads find their places
"""

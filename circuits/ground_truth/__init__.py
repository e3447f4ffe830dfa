"""Models whose circuit is known.

- compile.py: compile_circuit: write a transformer that has a given circuit
"""

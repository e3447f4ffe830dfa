"""Models whose circuit is known.

- compile.py: compile_circuit: a circuit made into a transformer that has it
"""

"""Models whose circuit is known.

- compile.py: compile_circuit: write a transformer that has a given circuit

What makes such a model harder to read, without another circuit:

- divide.py: divide: a path that two heads share, by the position of its target
- eliminate.py: eliminate: positional heads for what a path leaves out
- soften.py: soften, leak: heads that attend elsewhere, too
- noise.py: add_noise: noise in all weights
- superpose.py: superpose: fewer dimensions than tokens
"""

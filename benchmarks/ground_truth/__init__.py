"""Ground truth that can fail: models whose circuit is known, from easy to hard, and what ``discover`` finds in them.

- truth.py: a model with its true circuit, and the check that it carries it
- harder.py: what makes a compiled model harder to read, without another circuit
- levels.py: the levels
- __main__.py: the benchmark
"""

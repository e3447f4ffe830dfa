"""Ground truth that can fail: models whose circuit is known, from easy to hard, and what ``discover`` finds in them.

- truth.py: a model with its true circuit, and the check that it carries it
- levels.py: the levels
- interchange_trained.py: models that were trained to carry a circuit
- idle_heads.py: what ablations of heads without a part in the circuit cost
- __main__.py: the benchmark
"""

"""Replace a model's attention patterns with those of a circuit.

- hooks.py: ablated, run_ablated: plain hooks, the reference
- evaluation.py: evaluate: the losses of many circuits as a tree, equal to the reference
"""

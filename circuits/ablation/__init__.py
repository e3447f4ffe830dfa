"""Replace a model's attention patterns with those of a circuit.

- hooks.py: ablated, run_ablated: plain hooks, the reference
- evaluation.py: evaluate: the losses of many circuits at once, equal to the reference
- branches.py: computation that circuits share
"""

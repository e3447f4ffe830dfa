"""A circuit's attention patterns in the place of the model's own.

- hooks.py: ablated, run_ablated: plain hooks, the reference
- evaluation.py: evaluate: the losses of many circuits at once, equal to the reference
- branches.py: what many circuits share
- clamping.py: clamped: paths forced or forbidden while a model trains
"""

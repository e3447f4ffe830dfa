"""Losses of circuits, and decisions on them.

- loss.py: Mean, Loss: means over examples with standard errors, and on which side of a threshold they are
- by_label.py: ByLabel: means and losses for every label of a group, such as the slot
- sample.py: Sample: fresh examples, block by block
- sequential_test.py: SequentialTest: below or above a threshold, with as few examples as the decision needs
"""

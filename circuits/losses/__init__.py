"""Losses of circuits, and decisions on them.

- mean.py: Mean: a mean over examples with its standard error, and on which side of a threshold it is
- loss.py: Loss: such a mean, with loss components; thresholds
- by_label.py: ByLabel: means and losses for every label of a group, such as the slot
- interval.py: Interval: Wilson's interval of a share
- sample.py: Sample: fresh examples, block by block
- sequential_test.py: SequentialTest: below or above a threshold, with as few examples as the decision needs
"""

"""Losses of circuits, and decisions on them.

- loss.py: Loss: a mean with its standard error and components
- mean.py: Mean: the mean of any number over examples, with its standard error
- by_label.py: ByLabel: such means for every label of a group, such as the slot
- loss_by_label.py: losses_by_label: losses for every label, from those of the instances of an example
- interval.py: Interval: bootstrap and Wilson intervals
- sample.py: Sample: fresh examples, block by block
- loss_cache.py: LossCache: losses that were measured before
- sequential_test.py: SequentialTest: below or above a threshold, with as few examples as the decision needs
"""

"""Mechanisms: hypotheses about a head, as attention patterns.

- mechanism.py: Mechanism; Uniform, Identity, Previous, Resample
- one_hot.py: OneHot, Condition: paths from role to role, on all or on some instances
- fixed_pattern.py: FixedPattern: the same pattern in every example, such as a head's average
- registry.py: register: mechanisms of your own, by name
"""

from circuits.mechanisms.mechanism import Identity, Previous, Resample, Uniform
from circuits.mechanisms.one_hot import Condition

__all__ = ["Condition", "Identity", "Previous", "Resample", "Uniform"]

"""What a head is supposed to do, as an attention pattern.

- mechanism.py: Mechanism; Uniform, Identity, Previous
- one_hot.py: OneHot, Condition: paths from role to role, perhaps on some instances only
- fixed_pattern.py: FixedPattern: the same numbers in every example, such as a head's average
- registry.py: register: mechanisms of your own, by name
"""

"""Access to a transformer: its blocks, its attention patterns, and their averages.

- block.py: the parts of a block: values, attention output, MLP
- patterns.py: attention patterns, layer by layer
- attention.py: role_attention, attention_by_group: average attention from role to role
- kept_run.py: KeptRun: a run from which others branch off at any layer and position
- batching.py: the number of sequences that run at once
"""

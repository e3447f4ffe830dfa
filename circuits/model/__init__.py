"""What the engine needs of a transformer.

- block.py: the parts of a block: values, attention output, MLP
- patterns.py: attention patterns, layer by layer
- attention.py: role_attention, attention_by_group: attention averaged from role to role
- batching.py: how much runs at once
"""

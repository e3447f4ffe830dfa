"""How many layers it takes, by information flow.

- information_flow.py: who can know what after how many layers
- depth.py: layers for D hops: the paper's bound and the exact number
- chain_layout.py: what each role of a chain starts with
- facts.py: facts that depend on one another
- writing.py: how many written symbols D hops take
- grid.py: computational paths: positions by layers
- gradients.py: the same paths, seen in a model's gradients
"""

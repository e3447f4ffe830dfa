"""The number of layers that a task needs, by information flow.

- information_flow.py: the pieces of information that each position can know after each layer
- depth.py: the number of layers for D hops: the paper's bound and the exact number
- chain_layout.py: the pieces that each role of a chain starts with
- facts.py: the number of layers to answer a question from facts that depend on one another
- figures.py: both as figures, and on one offline page
"""

"""Information flow along the paths of a circuit, without the weights of a model.

- layout.py: Layout: the pieces of information that each role starts with
- circuit_flow.py: circuit_flow: the pieces that each path carries
- fixed_paths.py: fixed_paths: the paths of fixed patterns
- flow_check.py: flow_check: is every loss component known where it is read?
"""

"""Information flow along the paths of a circuit, without the weights of a model.

- circuit_flow.py: circuit_flow: the pieces that each path carries
- fixed_paths.py: fixed_paths: the paths of fixed patterns
- flow_check.py: flow_check: is every loss component known where it is read?
- predicted.py: predicted_accuracy: which interchange intervention changes which answer
"""

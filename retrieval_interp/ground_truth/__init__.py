"""The retrieval problem for models whose circuit is known.

- chains.py: ChainProblem: chains of exact symbols, as tokens
- minimal_circuit.py: minimal_circuit: the shallowest circuit
"""

"""The retrieval problem for models with a known circuit.

- chains.py: ChainTask: chains of symbols as tokens
- minimal_circuit.py: minimal_circuit: the shallowest circuit for D steps
"""

"""Models whose circuit is known.

- compile.py: compile_circuit: write a transformer that has a given circuit
- harder.py: what makes such a model harder to read, without another circuit
"""

from circuits.ground_truth.compile import Distractor, TokenTask, compile_circuit

__all__ = ["Distractor", "TokenTask", "compile_circuit"]

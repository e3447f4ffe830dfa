"""The retrieval problem: tasks, transformers, and the discovery and validation of their circuits.

from retrieval_interp import load

model, task, circuit = load("transformer_a")
logits, cache = model.run_with_cache(task.examples(8, seed=0).inputs)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

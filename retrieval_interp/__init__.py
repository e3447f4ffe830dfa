"""The retrieval problem: its task, its transformers, and how their circuits are found to hold.

from retrieval_interp import load
model, task, circuit = load("transformer_a")
logits, cache = model.run_with_cache(task.examples(8, seed=0).inputs)
"""

from typing import TYPE_CHECKING

from circuits.lazy import lazy

if TYPE_CHECKING:
    from retrieval_interp.library import Loaded, load
    from retrieval_interp.model import VectorTransformer
    from retrieval_interp.presets import PRESETS, preset
    from retrieval_interp.task import RetrievalTask

__all__ = ["PRESETS", "Loaded", "RetrievalTask", "VectorTransformer", "load", "preset"]

__getattr__ = lazy(
    __name__,
    {
        "PRESETS": "presets",
        "Loaded": "library",
        "RetrievalTask": "task",
        "VectorTransformer": "model",
        "load": "library",
        "preset": "presets",
    },
)

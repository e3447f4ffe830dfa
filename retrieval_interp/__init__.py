"""The retrieval problem: its task, its transformers, and how their circuits are found to hold.

from retrieval_interp import load
model, task, circuit = load("transformer_a")
logits, cache = model.run_with_cache(task.examples(8, seed=0).inputs)
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retrieval_interp.library import Loaded, load
    from retrieval_interp.model import VectorTransformer
    from retrieval_interp.presets import PRESETS, preset
    from retrieval_interp.task import RetrievalTask

__all__ = ["PRESETS", "Loaded", "RetrievalTask", "VectorTransformer", "load", "preset"]

_HOMES = {
    "PRESETS": "presets",
    "Loaded": "library",
    "RetrievalTask": "task",
    "VectorTransformer": "model",
    "load": "library",
    "preset": "presets",
}


def __getattr__(name: str) -> Any:
    """Import on first use: TransformerLens takes seconds, ``--help`` should not."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)

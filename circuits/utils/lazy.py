"""Libraries that are imported on first use: TransformerLens takes seconds, which a command's ``--help`` should not.

Code that only describes says ``from circuits.utils.lazy import torch``, and has PyTorch when it computes for the first
time. (``lazy_loader.load`` would do the same, but not for PyTorch: its lazy modules are not safe with threads, and
libraries that put another module in their place, as transformers does, cannot be loaded by them.)
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# Before PyTorch is there: its threads, while they wait, shall leave the processor to others, and soon. By default they
# keep it for milliseconds, and two processes on two cores take ten times as long and more. Never to wait at all costs
# as much where nothing else runs (a training step of transformer A: 0.38 s, and 0.25 with ten times as many turns).
# It holds for the whole process and its children, and only where PyTorch is imported after this.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # turns of waiting


class Deferred:
    """A library that is imported when one of its names is asked for."""

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._library), name)


if TYPE_CHECKING:
    import pandas as pandas
    import plotly as plotly
    import torch as torch
    import transformer_lens as transformer_lens
    import transformers as transformers
else:
    pandas, plotly, torch = Deferred("pandas"), Deferred("plotly"), Deferred("torch")
    transformer_lens, transformers = Deferred("transformer_lens"), Deferred("transformers")

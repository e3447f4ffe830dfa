"""Libraries that are imported on first use, because TransformerLens takes seconds to import.

With ``from circuits.utils.lazy import torch``, PyTorch is imported when one of its names is first used.
(``lazy_loader.load`` does not work for PyTorch: its lazy modules are not thread-safe, and cannot load libraries that
replace their own module, as transformers does.)
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

# These variables must be set before PyTorch is imported. They make its waiting threads release the processor soon. By
# default the threads spin for milliseconds, and two processes on two cores take ten times as long or more. Too few
# turns slow down a single process (a training step of transformer A: 0.38 s, against 0.25 s with ten times as many).
# The variables apply to the whole process and its children.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # turns of spinning


class Deferred:
    """A library that is imported when one of its names is first used."""

    def __init__(self, library: str) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._library), name)


if TYPE_CHECKING:
    import pandas as pandas
    import plotly as plotly
    import torch as torch
    import transformers as transformers
else:
    pandas, plotly, torch = Deferred("pandas"), Deferred("plotly"), Deferred("torch")
    transformers = Deferred("transformers")

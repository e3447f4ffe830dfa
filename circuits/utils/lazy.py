"""Libraries that are imported on first use, because TransformerLens takes seconds to import.

With ``from circuits.utils.lazy import torch``, PyTorch is imported when one of its names is first used.
(``lazy_loader.load`` does not work for PyTorch: its lazy modules are not thread-safe, and cannot load libraries that
replace their own module, as transformers does.)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any


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

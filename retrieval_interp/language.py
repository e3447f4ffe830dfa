"""Language models as HookedTransformers: those of this toolkit, and pretrained ones."""

import warnings
from pathlib import Path
from typing import Any

from transformer_lens import HookedTransformer

from circuits.errors import BadInput
from retrieval_interp import library
from retrieval_interp.checkpoints import CONFIG


def language_model(name: str, **options: Any) -> HookedTransformer:
    """A HookedTransformer with a tokenizer.

    Args:
        name: a model directory, one that comes with the toolkit, or whatever ``HookedTransformer.from_pretrained``
            knows, such as ``gpt2``.
        options: for ``from_pretrained``.

    Raises:
        BadInput: there is no such model, or it reads no text.
    """
    if Path(name).is_dir() or name.startswith(library.PREFIX) or (library.data_folder() / name / CONFIG).is_file():
        model: HookedTransformer = library.load(name).model
        if model.tokenizer is None:
            raise BadInput(f"{name}: reads no text, but vectors")
        return model
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
            return HookedTransformer.from_pretrained(name, **options).eval()
    except Exception as error:  # whatever stands between here and the weights
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BadInput(f"{name}: no model directory, and cannot be loaded as a pretrained model ({reason})") from error

"""Language models by their names, as TransformerBridges with tokenizers, on TransformerLens 3.9 and 4."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.utils.files import to_path
from circuits.utils.lazy import torch, transformers

OWN_CODE = {"trust_remote_code": False}  # a model's own code is never run, and never asked about


def from_pretrained(name: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Transformer:
    """Load a language model with its tokenizer, in evaluation mode.

    Prompts of different lengths can be one batch; their padding is then named in the roles:

        tokens = model.tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
        Examples(tokens["input_ids"], targets, Roles.of(positions, valid=tokens["attention_mask"]))

    Args:
        name: a name of the Hugging Face Hub, such as ``gpt2``, or a folder in its format, with weights in safetensors.
        device: the device of the model.
        dtype: its precision; by default float32.

    Raises:
        BadInput: there is no such model, it has no tokenizer or no safetensors, or lacks some weights; or
            TransformerLens does not support its architecture, or drops changes of its attention patterns.
    """
    from transformer_lens.model_bridge import TransformerBridge

    from circuits.model.layers import check_edits

    if not isinstance(name, str | Path):
        raise BadInput(f"a name: got {type(name).__name__}; expected a model's name, such as gpt2, or a folder")
    name = to_path(name) if str(name).startswith("~") else name
    steps = {
        "no model in Hugging Face's format": lambda: transformers.AutoConfig.from_pretrained(name, **OWN_CODE),
        "no tokenizer": lambda: _tokenizer(name),
        "no weights of a causal language model": lambda: _weights(name, dtype or torch.float32),
        "an architecture that TransformerLens does not support": lambda: TransformerBridge.boot_transformers(
            str(name), hf_model=found[2].to(device).eval(), tokenizer=found[1], device=device, dtype=found[2].dtype
        ),
    }
    found: list[Any] = []
    with warnings.catch_warnings(), redirect_stdout(sys.stderr), _no_bars():  # the libraries print to stdout
        warnings.simplefilter("ignore")
        for wrong, step in steps.items():
            try:
                found.append(step())
            except Exception as error:  # the libraries raise many kinds of errors
                reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
                raise BadInput(f"{name}: {wrong} ({reason})") from error
    model: Transformer = found[3]
    if model.tokenizer.pad_token is None:
        model.tokenizer.pad_token = model.tokenizer.eos_token
    check_edits(model)
    return model


def _weights(name: str | Path, dtype: torch.dtype) -> transformers.PreTrainedModel:
    options = {"use_safetensors": True, "attn_implementation": "eager"}  # pickle files are never loaded
    load = transformers.AutoModelForCausalLM.from_pretrained
    model, info = load(name, dtype=dtype, output_loading_info=True, **options, **OWN_CODE)
    if missing := sorted(info["missing_keys"]):  # transformers fills them with random numbers
        raise BadInput(f"{len(missing)} are missing, such as {missing[0]}")
    return model


@contextmanager
def _no_bars() -> Iterator[None]:
    """Hide the bars of loading from a disk, within a ``with`` block; downloads have bars of their own."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _tokenizer(name: str | Path) -> transformers.PreTrainedTokenizerBase:
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, **OWN_CODE)
    if len(tokenizer) <= len(tokenizer.all_special_ids):  # what comes where the files are missing
        raise BadInput("its vocabulary is empty")
    return tokenizer

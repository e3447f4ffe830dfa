"""Language models by their names, as TransformerBridges with tokenizers, on TransformerLens 3.9 and 4."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.utils.files import to_path
from circuits.utils.lazy import torch, transformers

# Weights are those of safetensors, for pickle files are never loaded; a model's code is never run, nor asked about.
CODE, WEIGHTS = {"trust_remote_code": False}, {"use_safetensors": True, "attn_implementation": "eager"}


def from_pretrained(name: str | Path, *, device: str = "cpu", dtype: torch.dtype | None = None) -> Transformer:
    """Load a language model with its tokenizer, in evaluation mode.

    The tokenizer is the model's own: it adds a start token only if it does so without TransformerLens, too. Prompts of
    different lengths can be one batch; their padding is then named in the roles:

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
    from huggingface_hub import get_hf_file_metadata, hf_hub_url, try_to_load_from_cache

    from circuits.model.layers import check_edits

    if not isinstance(name, str | Path):
        raise BadInput(f"a name: got {type(name).__name__}; expected a model's name, such as gpt2, or a folder")
    name = to_path(name) if str(name).startswith("~") else name
    dtype = dtype or torch.float32
    bars = transformers.utils.logging  # of loading from a disk; downloads have bars of their own
    with warnings.catch_warnings(), redirect_stdout(sys.stderr), ExitStack() as stack:  # the libraries print to stdout
        warnings.simplefilter("ignore")
        if bars.is_progress_bar_enabled():
            bars.disable_progress_bar()
            stack.callback(bars.enable_progress_bar)
        with _named(f"{name}: no model in Hugging Face's format, in a folder or on the Hub"):
            config = str(name), "config.json"
            if not Path(name).is_dir() and try_to_load_from_cache(*config) is None:
                get_hf_file_metadata(hf_hub_url(*config))  # fails at once; what follows tries for 40 seconds
            transformers.AutoConfig.from_pretrained(name, **CODE)
        with _named(f"{name}: no tokenizer"):
            tokenizer = transformers.AutoTokenizer.from_pretrained(name, **CODE)
            if len(tokenizer) <= len(tokenizer.all_special_ids):  # what comes where the files are missing
                raise BadInput("its vocabulary is empty")
        with _named(f"{name}: no weights of a causal language model"):
            load = transformers.AutoModelForCausalLM.from_pretrained
            weights, info = load(name, dtype=dtype, output_loading_info=True, **WEIGHTS, **CODE)
            if missing := sorted(info["missing_keys"]):  # transformers fills them with random numbers
                raise BadInput(f"{len(missing)} are missing, such as {missing[0]}")
        from transformer_lens.model_bridge import TransformerBridge  # takes seconds: after what may be misspelt

        with _named(f"{name}: an architecture that TransformerLens does not support"):
            given: dict[str, Any] = {"hf_model": weights.to(device).eval(), "tokenizer": tokenizer}
            model: Transformer = TransformerBridge.boot_transformers(str(name), device=device, dtype=dtype, **given)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    # TransformerLens has put one in its place that begins every text with a start token, which the model may never see.
    vars(model)["_tokenizer"] = tokenizer
    model.cfg.tokenizer_prepends_bos = tokenizer("a")["input_ids"][:1] == [tokenizer.bos_token_id]
    check_edits(model)
    return model


@contextmanager
def _named(wrong: str) -> Iterator[None]:
    """Turn an error of a library, which may be of any kind, into a BadInput that begins with what is wrong."""
    try:
        yield
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise BadInput(f"{wrong} ({reason})") from error

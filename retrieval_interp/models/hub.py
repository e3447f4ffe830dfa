"""Model directories from the Hugging Face Hub."""

from pathlib import Path

import huggingface_hub

from circuits.circuit_file import PATTERNS
from circuits.errors import BadInput
from retrieval_interp.models.model_dir import ATTENTION, CARD, CIRCUIT, CONFIG, LOG, REPORT, WEIGHTS

PREFIX = "hf:"
SHARED = (CONFIG, WEIGHTS, CIRCUIT, f"*{PATTERNS}", LOG, REPORT, ATTENTION, CARD)


def fetch(address: str) -> Path:
    """Download the model directory ``hf:owner/name``, unless the Hub's cache has it, and return its folder.

    Raises:
        BadInput: there is no such repository, or no connection.
    """
    try:
        folder = huggingface_hub.snapshot_download(address.removeprefix(PREFIX), allow_patterns=list(SHARED))
    except Exception as error:  # errors of the Hub and of the HTTP library
        raise BadInput(f"{address}: cannot be downloaded ({first_line(error)})") from error
    return Path(folder)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message, or the name of its class."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]

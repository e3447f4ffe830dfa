"""Model directories to and from the Hugging Face Hub."""

import re
from pathlib import Path

import huggingface_hub

from circuits.errors import BadInput
from circuits.pattern_file import PATTERNS
from retrieval_interp.card import CARD, model_card
from retrieval_interp.checkpoints import load_model
from retrieval_interp.curves import ATTENTION
from retrieval_interp.model_dir import CIRCUIT, CONFIG, LOG, WEIGHTS
from retrieval_interp.stored_report import REPORT

PREFIX = "hf:"
SHARED = (CONFIG, WEIGHTS, CIRCUIT, Path(CIRCUIT).with_suffix(PATTERNS).name, LOG, REPORT, ATTENTION, CARD)


def fetch(address: str) -> Path:
    """Download the model directory ``hf:owner/name`` (once; the Hub's cache keeps it) and say where it is.

    Raises:
        BadInput: there is no such repository, or no connection.
    """
    try:
        folder = huggingface_hub.snapshot_download(address.removeprefix(PREFIX), allow_patterns=list(SHARED))
    except Exception as error:  # the Hub's own, and those of whatever carries its requests
        raise BadInput(f"{address}: cannot be downloaded ({_first_line(error)})") from error
    return Path(folder)


def push(folder: Path, address: str) -> str:
    """Upload a model directory, with its card, to ``hf:owner/name``; returns the repository's web address.

    Needs a token, as ``hf auth login`` leaves it.

    Raises:
        BadInput: the address is none, the folder holds no whole model, or the Hub refuses.
    """
    if not re.fullmatch(f"{PREFIX}[^/]+/[^/]+", address):
        raise BadInput(f"{address}: expected an address like {PREFIX}owner/name")
    load_model(folder)
    card = model_card(folder, address).encode()
    try:
        api = huggingface_hub.HfApi()
        repository = api.create_repo(address.removeprefix(PREFIX), exist_ok=True)
        api.upload_file(path_or_fileobj=card, path_in_repo=CARD, repo_id=repository.repo_id)
        shared = [name for name in SHARED if name != CARD]
        api.upload_folder(folder_path=folder, repo_id=repository.repo_id, allow_patterns=shared)
    except Exception as error:  # the Hub's own, and those of whatever carries its requests
        raise BadInput(f"{address}: cannot be uploaded ({_first_line(error)})") from error
    return str(repository)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

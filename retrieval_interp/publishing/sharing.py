"""Upload of model directories to the Hugging Face Hub."""

import re
from pathlib import Path

import huggingface_hub

from circuits.errors import BadInput
from retrieval_interp.models.checkpoints import load_model
from retrieval_interp.models.hub import PREFIX, SHARED, first_line
from retrieval_interp.models.model_dir import CARD
from retrieval_interp.publishing.card import model_card


def push(folder: Path, address: str) -> str:
    """Upload a model directory with its card to ``hf:owner/name``, and return the web address of the repository.

    This needs a token, which ``hf auth login`` stores. BadInput if there is no complete model, or the upload fails.
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
    except Exception as error:  # errors of the Hub and of the HTTP library
        raise BadInput(f"{address}: cannot be uploaded ({first_line(error)})") from error
    return str(repository)

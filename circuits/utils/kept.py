"""Finished measurements, kept in a folder while long work runs: what was stopped goes on where it was.

with keeping("reports/ioi/unfinished", about={"model": "smollm2", "task": "ioi"}):
    discover(model, task)
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from circuits.errors import BadInput
from circuits.utils.files import to_path, write_atomically
from circuits.utils.lazy import torch

ABOUT = "about.json"
_FOLDER: ContextVar[Path | None] = ContextVar("kept", default=None)


@contextmanager
def keeping(folder: Path | str, about: Mapping[str, Any]) -> Iterator[None]:
    """Keep what is measured inside, and do not measure again what is there; when all is done, the folder goes.

    Args:
        folder: a folder of its own.
        about: what the measurements depend on, such as the model's hash, as JSON. What is kept of anything else goes.

    Raises:
        BadInput: there is a folder of this name that holds something else.
    """
    folder, said = to_path(folder), json.dumps(about, sort_keys=True, default=str)
    if folder.exists() and not (folder / ABOUT).is_file():
        raise BadInput(f"{folder}: is no folder of unfinished work; expected another name, or that it is moved away")
    if folder.exists() and (folder / ABOUT).read_text(encoding="utf-8") != said:
        shutil.rmtree(folder)
    write_atomically(folder / ABOUT, said)
    token = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(token)
    shutil.rmtree(folder)


def key_of(inputs: torch.Tensor, *more: object) -> str:
    """Return a name for what is measured on some inputs, the first eight of which name them."""
    digest = hashlib.sha256(inputs[:8].cpu().contiguous().view(torch.uint8).numpy().tobytes())
    digest.update(json.dumps(more).encode())
    return digest.hexdigest()[:32]


def kept(key: str) -> dict[str, torch.Tensor] | None:
    """Return what is kept under a name; None if there is nothing, or it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = _FOLDER.get()
    try:
        return None if folder is None else load((folder / key).read_bytes())
    except (OSError, SafetensorError):
        return None


def keep(key: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Keep tensors under a name, if anything is kept here."""
    from safetensors.torch import save

    if (folder := _FOLDER.get()) is not None:
        write_atomically(folder / key, save({name: one.contiguous() for name, one in tensors.items()}))

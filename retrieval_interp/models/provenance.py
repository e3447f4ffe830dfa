"""The origin of a result: versions, device, and the hash of the weights."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

from circuits.model.transformer import Transformer
from circuits.utils.lazy import torch


def versions() -> dict[str, str]:
    """Return the versions of this toolkit, of PyTorch and of TransformerLens."""
    return {name: version(name) for name in ("retrieval-interp", "torch", "transformer-lens")}


def metadata(name: str, model: Transformer) -> dict[str, Any]:
    """Return the name of the model, the hash of its weights, the device, the precision and the versions."""
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(tensor.cpu().flatten().view(torch.uint8).numpy().tobytes())
    weight = next(model.parameters())
    computed = {"device": str(weight.device), "precision": str(weight.dtype).removeprefix("torch.")}
    return {"model": name, "weights_sha256": digest.hexdigest(), **computed, **versions()}

"""What a result has to say of its origin: versions, device, and which weights it was measured on."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import Any

from circuits.utils.lazy import torch, transformer_lens


def versions() -> dict[str, str]:
    """Versions of this toolkit and of what computes."""
    return {name: version(name) for name in ("retrieval-interp", "torch", "transformer-lens")}


def metadata(name: str, model: transformer_lens.HookedTransformer) -> dict[str, Any]:
    """The model's name, the hash of its weights, the device, the precision and the versions."""
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(tensor.cpu().flatten().view(torch.uint8).numpy().tobytes())
    weight = next(model.parameters())
    computed = {"device": str(weight.device), "precision": str(weight.dtype).removeprefix("torch.")}
    return {"model": name, "weights_sha256": digest.hexdigest(), **computed, **versions()}

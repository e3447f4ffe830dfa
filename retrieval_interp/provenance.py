"""What a result has to say of its origin: versions, device, and which weights it was measured on."""

import hashlib
from importlib.metadata import version
from typing import Any

from transformer_lens import HookedTransformer


def versions() -> dict[str, str]:
    """Versions of this toolkit and of what computes."""
    return {name: version(name) for name in ("retrieval-interp", "torch", "transformer-lens")}


def about(name: str, model: HookedTransformer) -> dict[str, Any]:
    """The model's name, the hash of its weights, the device and the versions."""
    digest = hashlib.sha256()
    for key, tensor in sorted(model.state_dict().items()):
        digest.update(key.encode())
        digest.update(tensor.cpu().numpy().tobytes())
    device = str(next(model.parameters()).device)
    return {"model": name, "weights_sha256": digest.hexdigest(), "device": device, **versions()}

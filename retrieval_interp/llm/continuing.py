"""Reading a text piece by piece: the keys and values of what was read before are kept."""

from collections.abc import Callable
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import TransformerLensKeyValueCache

from circuits.model.transformer import Transformer, is_bridge

Continuing = Callable[[Int[Tensor, "one new"]], Float[Tensor, "one new d_vocab"]]


def continuing(model: Transformer) -> Continuing:
    """Return a function that reads the next tokens of one text, and returns the logits at these.

    TransformerBridge ignores TransformerLens's cache, so that the model in it keeps its own.
    """
    if not is_bridge(model):
        cache = TransformerLensKeyValueCache.init_cache(model.cfg, model.cfg.device, batch_size=1)
        return lambda tokens: model(tokens, past_kv_cache=cache)
    before: Any = None

    def read_on(tokens: Tensor) -> Tensor:
        nonlocal before
        found = model.original_model(tokens, past_key_values=before, use_cache=True)
        before = found.past_key_values
        logits: Tensor = found.logits
        return logits

    return read_on

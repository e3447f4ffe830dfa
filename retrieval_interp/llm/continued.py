"""Continuations of one prompt, which a model of Hugging Face reads once."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int

from circuits.model.transformer import Transformer, is_bridge
from circuits.utils.lazy import transformers


class Continued:
    """``n`` continuations of a prompt; ``logits`` are those after it, ``[continuation, 1, token]``.

    A TransformerBridge keeps the keys and values of what it has read; models that keep none read everything again.
    """

    def __init__(self, model: Transformer, prompt: Sequence[int], n: int) -> None:
        self._model, self._kept = model, transformers.DynamicCache() if is_bridge(model) else None
        self._seen = torch.empty(1, 0, dtype=torch.long, device=model.cfg.device)
        self.logits = self.read(self._seen.new_tensor([*prompt])[None])[:, -1:].expand(n, -1, -1)
        self._seen = self._seen.expand(n, -1)
        if self._kept is not None and self._kept.get_seq_length() == len(prompt):
            self._kept.batch_repeat_interleave(n)
        else:  # some architectures ignore what they are given to keep
            self._kept = None

    def read(self, tokens: Int[torch.Tensor, "continuation pos"]) -> Float[torch.Tensor, "continuation pos token"]:
        """Add tokens to the continuations, and return the logits after each of them."""
        self._seen = torch.cat([self._seen, tokens], dim=1)
        if self._kept is None:
            logits: torch.Tensor = self._model(self._seen)[:, -tokens.shape[1] :]
        else:
            logits = self._model(tokens, past_key_values=self._kept, use_cache=True)
        return logits.float()

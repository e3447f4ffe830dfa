"""Forced choice: which of some answers a model finds most likely. It needs no sampling, and fits base models."""

from collections.abc import Sequence

import torch

from circuits.model.transformer import Transformer
from retrieval_interp.llm.continued import Continued


@torch.no_grad()
def log_likelihoods(model: Transformer, prompt: Sequence[int], answers: Sequence[Sequence[int]]) -> list[float]:
    """Return the log-likelihood of each answer after a prompt, in nats, summed over the tokens of the answer.

    Args:
        model: a language model.
        prompt: the tokens of the prompt.
        answers: the tokens of each answer, at least one.
    """
    read = [*dict.fromkeys(tuple(answer[:-1]) for answer in answers)]  # where all are one token, the prompt alone
    longest = max(map(len, read))
    fill = prompt[-1]  # at the right, where no token that counts can see it
    rows = torch.tensor([[*head, *[fill] * (longest - len(head))] for head in read], device=model.cfg.device)
    after = Continued(model, prompt, len(read))
    logits = torch.cat([after.logits, after.read(rows)], dim=1) if longest else after.logits
    said = logits.log_softmax(dim=-1).cpu()
    return [
        sum(said[read.index(tuple(answer[:-1])), n, token].item() for n, token in enumerate(answer))
        for answer in answers
    ]

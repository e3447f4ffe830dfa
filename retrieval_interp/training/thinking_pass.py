"""The forward pass of a model that goes on after the queries: it reads words, its own thoughts, or nothing.

A *thought* is the residual stream after the last layer, added to the embedding of the next position of its chain, as in
continuous chain of thought (Hao et al., 2024). No word is chosen, so the pass is differentiable through all thoughts.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from retrieval_interp.tasks.thinking import PAUSES, THOUGHTS, WORDS, ThinkingTask
from retrieval_interp.training.training_pass import after_mlp, normalised, projected, queries_keys_values

Past = dict[int, Float[Tensor, "two batch head _ d_head"]]  # by layer: keys and values of the positions before


def thinking_pass(
    model: Transformer,
    task: ThinkingTask,
    inputs: Float[Tensor, "batch pos d_input"],
    reads: str,
    words: Float[Tensor, "batch slot step dim"] | None = None,
) -> Float[Tensor, "batch longer d_vocab_out"]:
    """Return the outputs at all positions of examples, then one block of N positions for every thought.

    Args:
        model: a causal transformer over vectors, of ``retrieval_interp.models.build``.
        task: the task.
        inputs: the inputs of examples.
        reads: what a position after the queries reads besides its position code: ``words``, ``thoughts``, or
            nothing (``pauses``). Without thoughts it is of no account.
        words: the symbols x1, x2, ... that are read as words; None: the model reads its own answers.

    Raises:
        BadInput: ``reads`` is unknown.
    """
    if task.n_thoughts and reads not in (WORDS, THOUGHTS, PAUSES):
        raise BadInput(f"reads is {reads!r}; expected one of {WORDS}, {THOUGHTS}, {PAUSES}")
    N, K = task.n_chains, task.n_dims
    codes = task.position_codes(task.n_positions + N * task.n_thoughts).to(inputs)
    past: Past = {}
    residual = go_on(model, model.embed(inputs), past)
    outputs = [read_out(model, residual)]
    for s in range(task.n_thoughts):
        residual, code = residual[:, -N:], codes[task.n_positions + s * N :][:N].expand(len(inputs), -1, -1)
        symbols = torch.zeros_like(code)
        if reads == WORDS:
            symbols = outputs[-1][:, -N:, :K] if words is None else words[:, :, s]
        read = model.embed(torch.cat([symbols, code], dim=-1))
        residual = go_on(model, read + residual if reads == THOUGHTS else read, past)
        outputs.append(read_out(model, residual))
    return torch.cat(outputs, dim=1)


def go_on(
    model: Transformer, residual: Float[Tensor, "batch pos d_model"], past: Past
) -> Float[Tensor, "batch pos d_model"]:
    """Return the residual stream of new positions after the last layer; their keys and values are added to ``past``."""
    for layer, block in enumerate(model.blocks):
        q, *new = queries_keys_values(block.attn, normalised(block.ln1, residual))
        past[layer] = torch.cat([*([past[layer]] if layer in past else []), torch.stack(new)], dim=-2)
        k, v = past[layer]
        later = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
        later = later.triu(1 + k.shape[-2] - q.shape[-2])
        pattern = (q @ k.mT / block.attn.attn_scale).masked_fill(later, -torch.inf).softmax(-1)
        residual = after_mlp(block, residual + projected(block.attn, pattern @ v))
    return residual


def read_out(model: Transformer, residual: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos d_out"]:
    """Return the outputs of a residual stream after the last layer."""
    return model.unembed(normalised(getattr(model, "ln_final", nn.Identity()), residual))

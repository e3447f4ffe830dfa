"""Superposition: a compiled model whose tokens have half as many dimensions as there are tokens.

Two tokens share a dimension as opposites, as rare features do in toy models (Elhage et al. 2022, *Toy Models of
Superposition*), and all directions are tilted at random, so that a reading of one token sees a little of all others.
Every MLP reads all tokens, drops what is far below 1, deletes what stood there, and writes the tokens anew. The last
MLP writes the answers to dimensions of their own.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.errors import BadInput
from circuits.ground_truth.compile import empty_model
from circuits.model.hooked_transformer import HookedTransformer

STEEP = 4.0  # slope with which an MLP tells 0 from 1; readings below 0.375 become 0, above 0.625 they become 1


def directions(n: int, tilt: float, seed: int) -> Float[Tensor, "token dim"]:
    """Return unit vectors in half as many dimensions: pairs of opposites, tilted by Gaussian noise of this size."""
    opposites = torch.eye(n // 2).repeat_interleave(2, dim=0) * torch.tensor([1.0, -1.0]).repeat(n // 2)[:, None]
    noise = torch.randn(n, n // 2, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(opposites + tilt * noise, dim=1)


def superpose(model: HookedTransformer, tilt: float = 0.0, seed: int = 0) -> HookedTransformer:
    """Return a model that computes as a compiled one does, with its tokens in half as many dimensions.

    Args:
        model: a model of ``compile_circuit``. Tokens 2i and 2i + 1 become opposites; a role knows one of them at most.
        tilt: the size of the noise that the directions are tilted by; without it, nothing is lost.
        seed: the seed of the noise.

    Raises:
        BadInput: the number of tokens is odd.
    """
    cfg = model.cfg
    symbols, places, answers = cfg.d_vocab, cfg.n_ctx, cfg.d_vocab_out
    if symbols % 2:
        raise BadInput(f"{symbols} tokens; expected an even number")
    dims = symbols // 2
    known, rest, answer = slice(0, dims), slice(dims, dims + 2 * places), slice(dims + 2 * places, None)
    E = directions(symbols, tilt, seed)
    small = empty_model(cfg, d_model=dims + 2 * places + answers, d_mlp=2 * dims + 2 * symbols)
    with torch.no_grad():
        small.embed.W_E[:, known] = E
        small.pos_embed.W_pos[:, rest] = model.pos_embed.W_pos[:, symbols:]
        small.unembed.W_U[answer] = torch.eye(answers)
        for own, block in zip(model.blocks, small.blocks, strict=True):
            for name in ("W_Q", "W_K", "W_V"):
                read, new = getattr(own.attn, name), getattr(block.attn, name)
                new[:, known] = E.T @ read[:, :symbols]
                new[:, rest] = read[:, symbols:]
            block.attn.W_V[:, known] *= dims / symbols  # of a token and its opposite, a value has both
            block.attn.W_O[..., known] = own.attn.W_O[..., :symbols] @ E
            block.attn.W_O[..., rest] = own.attn.W_O[..., symbols:]
            one = torch.eye(dims)
            block.mlp.W_in[known] = torch.cat([one, -one, STEEP * E.T, STEEP * E.T], dim=1)
            from_here, to_here = (STEEP - 1) / 2, (STEEP + 1) / 2
            block.mlp.b_in[2 * dims :] = torch.tensor([-from_here, -to_here]).repeat_interleave(symbols)
            block.mlp.W_out[:, known] = torch.cat([-one, one, E, -E])
        told = model.unembed.W_U[:symbols]  # the answers' tokens
        small.blocks[-1].mlp.W_out[2 * dims :, answer] = torch.cat([told, -told])
    return small

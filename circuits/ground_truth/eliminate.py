"""Elimination: a head that finds its target at some positions only; where it finds nothing, it is at the last one.

A path under a condition leaves instances out (``divide.py``). A second, positional head always fetches the position
that is left, into dimensions of their own: the *fallback*. The MLP then knows a token of the fallback if it knows none
of the same piece, and deletes the fallback.
"""

from collections.abc import Mapping

import torch

from circuits.ground_truth.compile import MATCH, TokenTask, empty_model
from circuits.heads import Head
from circuits.model.hooked_transformer import HookedTransformer


def eliminate(
    model: HookedTransformer, task: TokenTask, fallbacks: Mapping[Head, Mapping[str, int]]
) -> HookedTransformer:
    """Return a compiled model with positional heads that fetch what remains.

    Args:
        model: a model of ``compile_circuit``, whose paths leave instances out.
        task: its task.
        fallbacks: for heads that do nothing yet, the position that each role fetches.
    """
    cfg, symbols, places = model.cfg, task.n_tokens, task.n_positions
    wider = empty_model(cfg, d_model=cfg.d_model + symbols, d_mlp=5 * symbols)
    own = model.state_dict()
    with torch.no_grad():
        for name, parameter in wider.named_parameters():
            parameter[tuple(slice(0, size) for size in own[name].shape)] = own[name]
        known, fallback = slice(0, symbols), slice(cfg.d_model, None)
        place = slice(symbols, symbols + places)
        one, same = torch.eye(symbols), torch.zeros(symbols, symbols)
        for piece in {*task.layout.pieces} - task.layout.places:
            tokens = torch.tensor([*task.tokens_of(piece)])
            same[tokens[:, None], tokens] = 1
        for block in wider.blocks:
            block.mlp.W_in[known, 3 * symbols : 4 * symbols] = -same
            block.mlp.W_in[fallback, 3 * symbols :] = torch.cat([one, one], dim=1)
            block.mlp.W_out[3 * symbols : 4 * symbols, known] = one
            block.mlp.W_out[4 * symbols :, fallback] = -one
        for head, rows in fallbacks.items():
            attn, looked_at = wider.blocks[head.layer].attn, torch.eye(places)
            for role, position in rows.items():
                at = [*task.positions_of(role)]
                looked_at[at] = 0
                looked_at[at, position] = 1
            attn.W_Q[head.index] = 0
            attn.W_Q[head.index, place, symbols:] = MATCH * looked_at
            attn.W_O[head.index] = 0
            attn.W_O[head.index, :symbols, fallback] = one
    return wider

"""What makes a compiled model harder to read: distractors, divided paths, elimination, soft attention, noise."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.errors import BadInput
from circuits.ground_truth import MATCH, TokenTask, empty_model, where_to_look
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.model.hooked_transformer import HookedTransformer
from circuits.model.transformer import Transformer

STEEP = 4.0  # slope with which an MLP tells 0 from 1; readings below 0.375 become 0, above 0.625 they become 1


@dataclass(frozen=True)
class Distractor:
    """A head that attends to roles without any effect on the outputs.

    Attributes:
        rows: the target of each source, as in a one-hot mechanism; targets are found by position, in any instance.
        noise: the scale of its writes into dimensions that no head reads.
    """

    rows: Mapping[str, str]
    noise: float = 0.0


def distract(
    model: HookedTransformer, task: TokenTask, distractors: Mapping[Head, Distractor], seed: int = 0
) -> HookedTransformer:
    """Make heads of a compiled model that have no path attend without any effect on the outputs, in place."""
    symbols, places = task.n_tokens, task.n_positions
    place, free = slice(symbols, symbols + places), slice(symbols + places, None)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for head, own in sorted(distractors.items()):
            attn, paths = model.blocks[head.layer].attn, [AttentionPath(head, *ends) for ends in own.rows.items()]
            attn.W_Q[head.index] = 0
            attn.W_Q[head.index, place, symbols:] = where_to_look(paths, task, {})
            attn.W_O[head.index, :symbols, free] = own.noise * torch.randn(symbols, places, generator=generator)
    return model


def divide(circuit: Circuit, path: AttentionPath, other: Head, positions: Collection[int], task: TokenTask) -> Circuit:
    """Return a circuit in which a path holds at some positions of its target, and in another head at the rest.

    Args:
        circuit: a circuit of one-hot heads.
        path: one of its paths.
        other: the head that gets the rest; it has no path from the same role.
        positions: the positions of the target at which the path stays.
        task: the task; it knows where the target may stand.
    """
    ends = path.source, path.target
    rest = {*task.positions_of(path.target)} - {*positions}
    for head, here in ((path.head, positions), (other, rest)):
        own = circuit.heads.get(head, OneHot([ends]))
        assert isinstance(own, OneHot)
        where = {**dict(own.where), ends: Condition("position", path.target, tuple(here))}
        circuit = circuit.with_head(head, OneHot({*own.rows, ends}, own.elsewhere, where))
    return circuit


def eliminate(
    model: HookedTransformer, task: TokenTask, fallbacks: Mapping[Head, Mapping[str, int]]
) -> HookedTransformer:
    """Return a compiled model with positional heads that fetch what remains.

    A path under a condition leaves instances out (``divide``). A second, positional head always fetches the position
    that is left, into dimensions of their own: the *fallback*. The MLP then knows a token of the fallback if it knows
    none of the same piece, and deletes the fallback.

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


@torch.no_grad()
def soften(model: Transformer, heads: Iterable[Head], attention: float, n_instances: int, leak: bool = False) -> None:
    """Leave only a part of the attention of some heads of a compiled model on their targets, in place.

    A head of ``compile_circuit`` finds its own instance because the scores of common tokens are high (``MATCH``). Lower
    scores leave attention to other instances, and a little to all other positions. The head then writes more (its
    output is divided by the attention), so that its target's tokens still arrive as 1.

    Args:
        model: a model of ``compile_circuit``.
        heads: the heads.
        attention: the attention to the target that is left, between 1 / n_instances and 1, if one token is common.
        n_instances: the number of instances in an example.
        leak: lower the scores of common tokens only, so that attention leaks only to the same role of other instances.
    """
    lower = math.log(attention * (n_instances - 1) / (1 - attention)) / MATCH
    for head in heads:
        attn = model.blocks[head.layer].attn
        attn.W_Q[head.index, : model.cfg.d_vocab if leak else None] *= lower  # first come the tokens
        attn.W_O[head.index] /= attention


@torch.no_grad()
def add_noise(model: Transformer, share: float, seed: int) -> None:
    """Add Gaussian noise to every weight of a model, in place.

    Args:
        model: any transformer.
        share: the noise's standard deviation, as a share of the root mean square of the parameter that it is added to.
            Parameters that are zero throughout stay zero.
        seed: the seed of the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        rms = parameter.square().mean().sqrt()
        parameter.add_(share * rms * torch.randn(parameter.shape, generator=generator))


def directions(n: int, tilt: float, seed: int) -> Float[Tensor, "token dim"]:
    """Return unit vectors in half as many dimensions: pairs of opposites, tilted by Gaussian noise of this size."""
    opposites = torch.eye(n // 2).repeat_interleave(2, dim=0) * torch.tensor([1.0, -1.0]).repeat(n // 2)[:, None]
    noise = torch.randn(n, n // 2, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(opposites + tilt * noise, dim=1)


def superpose(model: HookedTransformer, tilt: float = 0.0, seed: int = 0) -> HookedTransformer:
    """Return a model that computes as a compiled one does, with its tokens in half as many dimensions.

    Two tokens share a dimension as opposites, as rare features do in toy models (Elhage et al. 2022, *Toy Models of
    Superposition*), and all directions are tilted at random, so that a reading of one token sees a little of all
    others. Every MLP reads all tokens, drops what is far below 1, deletes what stood there, and writes the tokens anew.
    The last MLP writes the answers to dimensions of their own.

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
        answers_of = model.unembed.W_U[:symbols]
        small.blocks[-1].mlp.W_out[2 * dims :, answer] = torch.cat([answers_of, -answers_of])
    return small

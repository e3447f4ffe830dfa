"""Compile a circuit into a transformer that computes with exactly this circuit: ground truth for discovery.

    residual    [ known: one entry for every token | position: one-hot | free: as many more ]
    queries     a position finds the target role of its path by position, and its own instance by the tokens it knows
    values      all known tokens are copied and added
    MLP         an entry x becomes min(max(2x - 1, 0), 1): a token that was added twice counts once, and a token with at
                most half the attention is dropped, so that attention spread over many positions carries nothing
    answer      the known tokens, where the loss components are read

A head attends within its own instance because both ends of a path know a common token. A path to the position before,
in the same place, needs none. Positions on none of a head's paths attend to themselves, which adds nothing new. So do
instances that the condition of a path leaves out: there, no position that the head looks at has a common token.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from circuits.circuit import AttentionPath, Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.mechanisms.one_hot import Condition, OneHot
from circuits.model.hooked_transformer import HookedTransformer, HookedTransformerConfig
from circuits.task import LaidOut, Task

MATCH = 30.0  # score of a common token; attention to other instances is then e^-30


class TokenTask(Task, LaidOut, Protocol):
    """A task over tokens that circuits can be compiled for; every role has positions of its own.

    Each loss component is a piece of the layout, and the outputs hold one entry for each of its tokens.
    """

    @property
    def n_positions(self) -> int:
        """Length of a sequence."""

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""

    def positions_of(self, role: str) -> Sequence[int]:
        """Return the possible positions of a role."""

    def tokens_of(self, piece: str) -> Sequence[int]:
        """Return the possible tokens of a piece of information."""


def known_after(circuit: Circuit, task: TokenTask) -> list[dict[str, frozenset[str]]]:
    """Return the pieces that each role knows at the start and after every layer, by the circuit's paths alone.

    Conditions are not counted: a path with one is expected to have another head that covers the other instances.

    Raises:
        BadInput: a path joins two roles that share no piece and are not neighbours, or its ends are not roles.
    """
    for path in circuit.paths:
        if not {path.source, path.target} <= set(task.roles):
            raise BadInput(f"{path} does not join two roles; the roles are {', '.join(task.roles)}")
    layout = task.layout
    known = {role: layout.start[role] - layout.places for role in task.roles}
    layers = [known]
    for layer in range(1 + max((path.head.layer for path in circuit.paths), default=-1)):
        after = dict(known)
        for path in circuit.paths:
            if path.head.layer == layer:
                if not known[path.source] & known[path.target] and (path.source, path.target) not in layout.joined:
                    raise BadInput(f"{path}: the two roles share no symbol below layer {layer}")
                after[path.source] |= known[path.target]
        known = after
        layers.append(known)
    return layers


def solves(circuit: Circuit, task: TokenTask) -> bool:
    """Whether every loss component is known where it is read, after the last layer."""
    try:
        known = known_after(circuit, task)[-1]
    except BadInput:
        return False
    return all(piece in known[role] for piece, role in task.read_at.items())


@entrance
def compile_circuit(
    circuit: Circuit, task: TokenTask, *, n_layers: int | None = None, n_heads: int | None = None
) -> HookedTransformer:
    """Compile a circuit into a transformer that solves ``task`` with exactly the circuit's paths.

    Args:
        circuit: a circuit of one-hot heads, with one path from a role at most; a path may hold at some positions of its
            target only. Heads that it does not name attend to themselves and write nothing.
        task: the task that the transformer solves.
        n_layers: the number of layers; by default as many as the circuit needs.
        n_heads: the number of heads of a layer; by default as many as the circuit needs.

    Returns:
        A token model with ReLU MLPs and no LayerNorm.

    Raises:
        BadInput: the circuit does not fit the task or does not solve it, or has heads that are not one-hot.
    """
    if not circuit.paths:
        raise BadInput("the circuit has no path; expected at least one")
    n_layers = n_layers or 1 + max(head.layer for head in circuit.heads)
    n_heads = n_heads or 1 + max(head.index for head in circuit.heads)
    circuit.check(task.examples(8, seed=0).roles, n_layers, n_heads)
    for head, mechanism in circuit.heads.items():
        if not isinstance(mechanism, OneHot) or mechanism.elsewhere != "zero" or mechanism.paths != mechanism.rows:
            raise BadInput(f"{head} is {mechanism}; only one-hot heads can be compiled, with zero elsewhere")
        if len({source for source, _ in mechanism.rows}) < len(mechanism.rows):
            raise BadInput(f"{head} is {mechanism}; expected one path from a role")
        for (_, target), condition in mechanism.where:
            if condition != Condition("position", target, condition.labels):
                raise BadInput(f"{head} is {mechanism}; expected conditions on the position of the target")
    before = known_after(circuit, task)
    if not solves(circuit, task):
        asked = ", ".join(task.read_at)
        raise BadInput(f"the circuit does not solve the task: {asked} are not all known where they are read")

    symbols, places = task.n_tokens, task.n_positions
    answers = [token for piece in task.read_at for token in task.tokens_of(piece)]
    cfg = HookedTransformerConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=symbols + 2 * places,
        d_head=symbols + places,
        d_mlp=3 * symbols,
        act_fn="relu",
        n_ctx=places,
        d_vocab=symbols,
        d_vocab_out=len(answers),
        normalization_type=None,
        use_attn_scale=False,
        init_weights=False,
        device="cpu",
    )
    model = empty_model(cfg)
    known, place = slice(0, symbols), slice(symbols, symbols + places)
    with torch.no_grad():
        model.embed.W_E[:, known] = torch.eye(symbols)
        model.pos_embed.W_pos[:, place] = torch.eye(places)
        model.unembed.W_U[answers] = torch.eye(len(answers))
        for layer, block in enumerate(model.blocks):
            one = torch.eye(symbols)
            block.mlp.W_in[known] = torch.cat([one, 2 * one, 2 * one], dim=1)
            block.mlp.b_in.copy_(torch.tensor([0.0, -1.0, -2.0]).repeat_interleave(symbols))
            block.mlp.W_out[:, known] = torch.cat([-one, one, -one])
            for index in range(n_heads):
                head, attn = Head(layer, index), block.attn
                attn.W_K[index, known, :symbols] = torch.eye(symbols)
                attn.W_K[index, place, symbols:] = torch.eye(places)
                paths = [path for path in circuit.paths if path.head == head]
                n_known = {role: len(pieces) for role, pieces in before[layer].items()} if paths else {}
                attn.W_Q[index, known, :symbols] = MATCH * torch.eye(symbols)
                attn.W_Q[index, place, symbols:] = where_to_look(paths, task, n_known)
                attn.W_V[index, known, :symbols] = torch.eye(symbols)
                if paths:
                    attn.W_O[index, :symbols, known] = torch.eye(symbols)
    return model.eval()


def where_to_look(paths: Sequence[AttentionPath], task: TokenTask, n_known: Mapping[str, int]) -> Tensor:
    """Return the query of every position (row) for the position of its path's target, ``[pos, pos]``.

    Positions on no path prefer themselves. So do those of a path with a condition if they find nothing: more than a
    position without a common token, and less than one with, of the ``n_known`` tokens that the role knows.
    """
    n_pieces = len({*task.layout.pieces} - task.layout.places)
    preference = MATCH * (n_pieces + 1)  # higher than the sum of the scores of all common symbols
    looked_at = torch.eye(task.n_positions)
    for path in paths:
        before = (path.source, path.target) in task.layout.joined
        for position in task.positions_of(path.source):
            looked_at[position] = 0
            looked_at[position, [position - 1] if before else list(task.positions_of(path.target))] = 1
            if path.condition is not None:
                left_out = [place for place in task.positions_of(path.target) if place not in path.condition.labels]
                looked_at[position, left_out] = 0
                looked_at[position, position] = 1 + (0.5 - n_known[path.source]) * MATCH / preference
    return preference * looked_at


def empty_model(cfg: HookedTransformerConfig, **sizes: int) -> HookedTransformer:
    """Return a model whose weights are all zero; ``sizes`` take the place of those of the config."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
        model = HookedTransformer(replace(cfg, **sizes))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model

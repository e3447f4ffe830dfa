"""A circuit made into a transformer that computes by exactly that circuit: ground truth for discovery.

    residual    [ known: one entry for every symbol | position: one-hot | noise ]
    queries     a position asks for its path's target role by position, and for its own chain by the symbols it knows
    values      everything known is copied and added
    MLP         what was added twice is cut back to one, and what is half known at most is forgotten: x becomes
                min(max(2x - 1, 0), 1), so that attention spread over many positions tells nothing
    answer      what is known at the query of steps 1 ... D

A head attends within its own chain because both ends know a symbol in common; a path between the two members of a pair
needs none, since the position before is always the same one. Positions that lie on none of a head's paths attend to
themselves, which adds nothing new.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from circuits.chains import ChainProblem
from circuits.circuit import Circuit, Head, Path
from circuits.errors import BadInput
from circuits.one_hot import OneHot

MATCH = 30.0  # score of a symbol in common: what it leaves to other chains is e^-30


@dataclass(frozen=True)
class Distractor:
    """A head that attends somewhere to no avail.

    Attributes:
        rows: from-role to to-role, as in a one-hot mechanism; targets are found by position, in whatever chain.
        noise: how strongly it writes what it sees into dimensions that nobody reads.
    """

    rows: Mapping[str, str]
    noise: float = 0.0


def known_after(circuit: Circuit, problem: ChainProblem) -> list[dict[str, frozenset[int]]]:
    """For every layer, the steps whose symbols each role knows after it, along the circuit's paths alone.

    Raises:
        BadInput: a path joins two roles that know no symbol in common and are no neighbours, or is of no one-hot head.
    """
    for path in circuit.paths:
        if not {path.source, path.target} <= set(problem.roles):
            raise BadInput(f"{path}: joins no two roles; the roles are {', '.join(problem.roles)}")
    known = {role: frozenset({problem.step_of(role)}) for role in problem.roles}
    layers = [known]
    for layer in range(1 + max((path.head.layer for path in circuit.paths), default=-1)):
        after = dict(known)
        for path in circuit.paths:
            if path.head.layer == layer:
                if not known[path.source] & known[path.target] and not _neighbours(path):
                    raise BadInput(f"{path}: the two roles know no symbol in common below layer {layer}")
                after[path.source] |= known[path.target]
        known = after
        layers.append(known)
    return layers


def solves(circuit: Circuit, problem: ChainProblem) -> bool:
    """Whether the query knows the whole chain in the end."""
    try:
        return len(known_after(circuit, problem)[-1]["query"]) == problem.n_steps + 1
    except BadInput:
        return False


def minimal_circuit(n_steps: int) -> Circuit:
    """The shallowest circuit for D steps, in 1 + ceil(log2(D + 1)) layers of one head.

    The first layer joins the members of every pair. From then on every pair takes over what the pair stands for that
    begins where its own knowledge ends, and so does the query: what a pair knows doubles with every layer,
    and the query knows one step less than twice as many.
    """
    if n_steps < 1:
        raise BadInput(f"{n_steps} steps; expected at least 1")
    heads: dict[Head, OneHot] = {}
    layer, reach, asked = 0, 1, 0  # steps that a pair knows, and steps that the query knows
    heads[Head(0, 0)] = OneHot({f"pair{k}.second": f"pair{k}.first" for k in range(1, n_steps + 1)})
    while asked < n_steps:
        layer += 1
        rows = {"query": f"pair{asked + 1}.second"}
        rows |= {f"pair{k}.second": f"pair{k + reach}.second" for k in range(1, n_steps + 1 - reach)}
        heads[Head(layer, 0)] = OneHot(rows)
        asked, reach = asked + reach, 2 * reach
    circuit = Circuit(heads, name=f"minimal, {n_steps} steps")
    return without_superfluous_paths(circuit, ChainProblem(n_steps))


def without_superfluous_paths(circuit: Circuit, problem: ChainProblem) -> Circuit:
    """The circuit without every path that can go, one after the other, highest layer first, until none can."""
    for path in reversed(circuit.paths):
        smaller = without_path(circuit, path)
        if solves(smaller, problem):
            return without_superfluous_paths(smaller, problem)
    return circuit


def without_path(circuit: Circuit, path: Path) -> Circuit:
    """The circuit with one path of a one-hot head gone, and the head too if that was its only one."""
    mechanism = circuit.heads[path.head]
    if isinstance(mechanism, OneHot) and len(mechanism.rows) > 1:
        return circuit.with_head(path.head, mechanism.without_row(path.source))
    return circuit.without_heads([path.head])


def compile_circuit(
    circuit: Circuit,
    problem: ChainProblem,
    *,
    n_layers: int | None = None,
    n_heads: int | None = None,
    distractors: Mapping[Head, Distractor] | None = None,
    seed: int = 0,
) -> HookedTransformer:
    """Write down the weights of a transformer that solves ``problem`` by exactly ``circuit``.

    Args:
        circuit: one-hot heads; heads that it does not name attend to themselves and write nothing.
        problem: what the transformer solves.
        n_layers: of the transformer; as many as the circuit and the distractors need, if not given.
        n_heads: likewise, in every layer.
        distractors: heads that attend somewhere to no avail.
        seed: of the distractors' noise.

    Returns:
        A token model with ReLU MLPs and no LayerNorm.

    Raises:
        BadInput: the circuit does not fit the problem, has other than one-hot heads, or does not solve it.
    """
    distractors = distractors or {}
    if not circuit.paths:
        raise BadInput("the circuit has no path; nothing could be compiled")
    everyone = [*circuit.heads, *distractors]
    n_layers = n_layers or 1 + max(head.layer for head in everyone)
    n_heads = n_heads or 1 + max(head.head for head in everyone)
    lookers = {head: OneHot(distractor.rows) for head, distractor in distractors.items()}
    for checked in (circuit, Circuit(lookers)):
        checked.check(problem.examples(8, seed=0).roles, n_layers, n_heads)
    for head, mechanism in circuit.heads.items():
        if not isinstance(mechanism, OneHot) or mechanism.elsewhere != "zero" or mechanism.paths != mechanism.rows:
            raise BadInput(f"{head} is {mechanism}; only one-hot heads can be compiled, and zero elsewhere")
        if head in distractors:
            raise BadInput(f"{head} cannot be a distractor too")
    if len(known_after(circuit, problem)[-1]["query"]) < problem.n_steps + 1:
        raise BadInput("the circuit does not solve the problem: the query does not come to know the whole chain")

    symbols, places = problem.n_tokens, problem.n_positions
    model = _empty(problem, n_layers, n_heads)
    known, place, noise = slice(0, symbols), slice(symbols, symbols + places), slice(symbols + places, None)
    generator = torch.Generator().manual_seed(seed)
    preference = MATCH * (problem.n_steps + 2)  # above all that symbols in common can add up to
    with torch.no_grad():
        model.embed.W_E[:, known] = torch.eye(symbols)
        model.pos_embed.W_pos[:, place] = torch.eye(places)
        model.unembed.W_U[problem.n_symbols : symbols] = torch.eye(symbols)[problem.n_symbols :, problem.n_symbols :]
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
                looked_at = _where_to_look(paths, problem)
                if head in distractors:
                    rows = [Path(head, source, target) for source, target in distractors[head].rows.items()]
                    looked_at = _where_to_look(rows, problem)
                    attn.W_O[index, :symbols, noise] = distractors[head].noise * torch.randn(
                        symbols, places, generator=generator
                    )
                attn.W_Q[index, place, symbols:] = preference * looked_at
                attn.W_V[index, known, :symbols] = torch.eye(symbols)
                if head not in distractors:
                    attn.W_Q[index, known, :symbols] = MATCH * torch.eye(symbols)
                if paths:
                    attn.W_O[index, :symbols, known] = torch.eye(symbols)
    return model.eval()


def _where_to_look(paths: list[Path], problem: ChainProblem) -> Tensor:
    """1 where a position (row) may look for its path's target; positions on no path look at themselves."""
    looked_at = torch.eye(problem.n_positions)
    for path in paths:
        for position in problem.block(path.source):
            looked_at[position] = 0
            looked_at[position, [position - 1] if _neighbours(path) else list(problem.block(path.target))] = 1
    return looked_at


def _neighbours(path: Path) -> bool:
    return path.source.endswith(".second") and path.target == path.source.removesuffix("second") + "first"


def _empty(problem: ChainProblem, n_layers: int, n_heads: int) -> HookedTransformer:
    symbols, places = problem.n_tokens, problem.n_positions
    cfg = HookedTransformerConfig(
        n_layers=n_layers,
        n_heads=n_heads,
        d_model=symbols + 2 * places,
        d_head=symbols + places,
        d_mlp=3 * symbols,
        act_fn="relu",
        n_ctx=places,
        d_vocab=symbols,
        d_vocab_out=symbols - problem.n_symbols,
        normalization_type=None,
        use_attn_scale=False,
        init_weights=False,
        device="cpu",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="HookedTransformer is deprecated")
        model = HookedTransformer(cfg)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model

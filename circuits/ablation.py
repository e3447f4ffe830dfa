"""Ablation: a circuit's attention patterns put in the place of the model's own (paper, Appendix E)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer
from transformer_lens.hook_points import HookPoint

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.mechanisms import Mechanism
from circuits.problem import Examples, Problem
from circuits.roles import Roles

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**14

Hook = Callable[[Float[Tensor, "batch head query key"], HookPoint], Float[Tensor, "batch head query key"]]


def pattern_hook(layer: int) -> str:
    """Name of the hook point that sees a layer's attention patterns, after softmax and mask."""
    return f"blocks.{layer}.attn.hook_pattern"


@contextmanager
def ablated(model: HookedTransformer, circuit: Circuit, roles: Roles) -> Iterator[HookedTransformer]:
    """The model with the circuit's patterns in place; afterwards it is as it was.

    Args:
        model: any HookedTransformer without padding.
        circuit: the hypothesis; heads that it does not name keep their own patterns.
        roles: the named positions of the batch that will be run.

    Raises:
        BadInput: the circuit does not fit the model or the roles.
        RuntimeError: the model was run, but some of the hooks did nothing.
    """
    circuit.check(roles, model.cfg.n_layers, model.cfg.n_heads)
    layers = sorted({head.layer for head in circuit.heads})
    fired: set[int] = set()
    ran = False

    def watch(pattern: Tensor, hook: HookPoint) -> Tensor:
        nonlocal ran
        ran = True
        return pattern

    def override(pattern: Tensor, hook: HookPoint, layer: int) -> Tensor:
        fired.add(layer)
        return overridden(pattern, circuit.layer(layer), roles)

    # Every layer is watched: a run that starts above an ablated layer or stops below it must not go unnoticed.
    hooks: list[tuple[str, Hook]] = [(pattern_hook(layer), watch) for layer in range(model.cfg.n_layers)]
    hooks += [(pattern_hook(layer), partial(override, layer=layer)) for layer in layers]
    with model.hooks(fwd_hooks=hooks):
        yield model
    silent = [layer for layer in layers if layer not in fired]
    if ran and silent:
        raise RuntimeError(f"the ablation of layers {silent} did nothing: the run started above or stopped below them")


def overridden(
    pattern: Float[Tensor, "batch head query key"], heads: Sequence[tuple[int, Mechanism]], roles: Roles
) -> Float[Tensor, "batch head query key"]:
    """A layer's attention pattern with some heads replaced; the given tensor is left alone.

    Raises:
        BadInput: the roles are those of another batch.
    """
    if len(roles) != pattern.shape[0]:
        raise BadInput(f"the roles are those of {len(roles)} examples; the model was run on {pattern.shape[0]}")
    pattern = pattern.clone()
    for index, mechanism in heads:
        pattern[:, index] = mechanism.pattern(roles, pattern.shape[-1]).to(pattern.dtype)
    return pattern


def run_ablated(model: HookedTransformer, circuit: Circuit, examples: Examples) -> Float[Tensor, "batch pos d_out"]:
    """The model's outputs on the examples, with the circuit's patterns in place."""
    with ablated(model, circuit, examples.roles):
        return model(examples.inputs)


@torch.no_grad()
def evaluate(
    model: HookedTransformer,
    problem: Problem,
    examples: Examples,
    circuits: Sequence[Circuit],
    progress: Callable[[float], None] = lambda share: None,
) -> Float[Tensor, "circuit example part"]:
    """Partial losses of every example under every circuit's ablation.

    Circuits that agree on all layers below share the work there: each distinct beginning is run once.

    Args:
        model: any HookedTransformer without padding.
        problem: gives the losses.
        examples: what to run.
        circuits: the ablations; ``Circuit()`` is none.
        progress: is told the finished share, 0 to 1.

    Raises:
        BadInput: a circuit does not fit the model or the examples.
    """
    cfg = model.cfg
    for circuit in dict.fromkeys(circuits):
        circuit.check(examples.roles, cfg.n_layers, cfg.n_heads)
    at_once = max(1, POSITIONS_AT_ONCE // (len(circuits) * examples.inputs.shape[1]))
    losses = []
    for start in range(0, len(examples), at_once):
        batch = examples.take(slice(start, start + at_once))
        losses.append(_evaluate_batch(model, problem, batch, circuits))
        progress(min(1.0, (start + at_once) / len(examples)))
    return torch.cat(losses, dim=1)


def _evaluate_batch(
    model: HookedTransformer, problem: Problem, examples: Examples, circuits: Sequence[Circuit]
) -> Float[Tensor, "circuit example part"]:
    # A branch is a set of circuits that agree so far, with the residual stream that they share.
    branches = [list(range(len(circuits)))]
    residual = model(examples.inputs, stop_at_layer=0)[None]  # [branch, example, pos, d_model]
    for layer in range(model.cfg.n_layers):
        split: list[tuple[int, tuple[tuple[int, Mechanism], ...], list[int]]] = []
        for parent, members in enumerate(branches):
            by_heads: dict[tuple[tuple[int, Mechanism], ...], list[int]] = {}
            for member in members:
                by_heads.setdefault(circuits[member].layer(layer), []).append(member)
            split += [(parent, heads, agreeing) for heads, agreeing in by_heads.items()]
        if len(split) > len(branches):
            residual = residual[torch.tensor([parent for parent, _, _ in split], device=residual.device)]
        branches = [agreeing for _, _, agreeing in split]

        def override(pattern: Tensor, hook: HookPoint, split: list = split) -> Tensor:
            by_branch = pattern.unflatten(0, (len(split), -1)).clone()
            for branch, (_, heads, _) in enumerate(split):
                for index, mechanism in heads:
                    own = mechanism.pattern(examples.roles, pattern.shape[-1])
                    by_branch[branch, :, index] = own.to(pattern.dtype)
            return by_branch.flatten(0, 1)

        shape = residual.shape[:2]
        after = model.run_with_hooks(
            residual.flatten(0, 1),
            start_at_layer=layer,
            stop_at_layer=layer + 1,
            fwd_hooks=[(pattern_hook(layer), override)],
        )
        residual = after.unflatten(0, shape)
    outputs = model(residual.flatten(0, 1), start_at_layer=model.cfg.n_layers).unflatten(0, residual.shape[:2])
    losses: list[Tensor] = [outputs.new_empty(0)] * len(circuits)
    for branch, members in enumerate(branches):
        branch_losses = problem.losses(outputs[branch], examples)
        for member in members:
            losses[member] = branch_losses
    return torch.stack(losses)

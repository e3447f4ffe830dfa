"""Ablation: replace a model's attention patterns with those of a circuit (paper, Appendix E)."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from circuits.circuit import Circuit, Head, Layer
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import Mechanism, Resample, head_pattern
from circuits.model.layers import check_edits
from circuits.model.patterns import pattern_hook
from circuits.model.transformer import Transformer, run
from circuits.model.windows import windowed
from circuits.roles import Roles
from circuits.task import Examples

Hook = Callable[[Float[Tensor, "batch head query key"], nn.Module], Float[Tensor, "batch head query key"]]


@entrance
def ablated(model: Transformer, circuit: Circuit, roles: Roles) -> AbstractContextManager[Transformer]:
    """Ablate a model within a ``with`` block: the circuit's heads are replaced, all others are intact.

    Args:
        model: any HookedTransformer or TransformerBridge without hooks of its own.
        circuit: the hypothesis.
        roles: the roles of the batch that will be run, which name its padding (``valid``) if it has any.

    Returns:
        a context manager; it gives the model, whose outputs are ``[batch, pos, d_out]`` as ever.

    Raises:
        BadInput: the circuit does not fit the model or the roles, or changes of the model's attention have no effect.
            On leaving the block: some of the hooks were not called, because the model was run above or below their
            layers, or not at all, or something (such as torch.compile) ran it without its hooks.
    """
    return ablating(model, circuit, roles)


@contextmanager
def ablating(model: Transformer, circuit: Circuit, roles: Roles) -> Iterator[Transformer]:
    """As ``ablated``, for a model that was checked."""
    check_edits(model)
    roles = windowed(model, roles)
    circuit.check(roles, model.cfg.n_layers, model.cfg.n_heads)
    layers = sorted({head.layer for head in circuit.heads})
    fired: set[int] = set()

    def override(pattern: Tensor, hook: nn.Module, layer: int) -> Tensor:
        fired.add(layer)
        return overridden(pattern, layer, circuit.layer(layer), roles.in_layer(layer))

    hooks: list[tuple[str, Hook]] = [(pattern_hook(layer), partial(override, layer=layer)) for layer in layers]
    with model.hooks(fwd_hooks=hooks):
        yield model
    silent = [layer for layer in layers if layer not in fired]
    if silent:
        raise BadInput(
            f"the ablation of layers {silent} did nothing; expected the model to be run through them, with its hooks"
        )


def overridden(
    pattern: Float[Tensor, "batch head query key"], layer: int, heads: Layer, roles: Roles
) -> Float[Tensor, "batch head query key"]:
    """Return a copy of a layer's attention pattern with some heads replaced.

    Raises:
        BadInput: the roles belong to another batch, or a mechanism does not fit them.
    """
    if pattern.shape[-2] != pattern.shape[-1]:
        queries, keys = pattern.shape[-2:]
        raise BadInput(
            f"an ablated model was run on {queries} of {keys} positions, as with a cache of keys; "
            "expected whole sequences (generate with use_past_kv_cache=False)"
        )
    if int(roles.positions.max()) >= pattern.shape[-1]:
        last = int(roles.positions.max())
        raise BadInput(f"a role is at position {last}; the model was run on {pattern.shape[-1]} positions")
    if len(roles) != pattern.shape[0]:
        raise BadInput(f"the roles belong to {len(roles)} examples; the model was run on {pattern.shape[0]}")
    pattern = pattern.clone()
    for index, mechanism in heads:
        pattern[:, index] = head_pattern(Head(layer, index), mechanism, roles, pattern.shape[-1]).to(pattern.dtype)
    return pattern


@entrance
def run_ablated(model: Transformer, circuit: Circuit, examples: Examples) -> Float[Tensor, "batch pos d_out"]:
    """Return the model's outputs on the examples under the circuit's ablation.

    Raises:
        BadInput: as ``ablated``; or a head is resampled, and the examples have no counterfactual inputs.
    """
    with ablating(model, _resampled(model, circuit, examples), examples.roles):
        return run(model, examples)


@dataclass(frozen=True, eq=False)
class _Seen(Mechanism):
    """The patterns of a head in another run, ``[batch, query, key]``."""

    weights: Tensor
    name = "resample"

    def pattern(self, roles: Roles, n_positions: int) -> Float[Tensor, "batch query key"]:
        return self.weights


def _resampled(model: Transformer, circuit: Circuit, examples: Examples) -> Circuit:
    """Return the circuit with the patterns that its resampled heads have on the counterfactual inputs."""
    heads = [head for head, mechanism in circuit.heads.items() if isinstance(mechanism, Resample)]
    if not heads:
        return circuit
    seen: dict[int, Tensor] = {}

    def see(pattern: Tensor, hook: nn.Module, layer: int) -> Tensor:
        seen[layer] = pattern
        return pattern

    hooks: list[tuple[str, Hook]] = [
        (pattern_hook(layer), partial(see, layer=layer)) for layer in {head.layer for head in heads}
    ]
    with model.hooks(fwd_hooks=hooks):
        run(model, examples.counterfactuals())
    return Circuit({**circuit.heads, **{head: _Seen(seen[head.layer][:, head.index]) for head in heads}})

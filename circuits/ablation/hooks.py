"""Ablation: a circuit's attention patterns put in the place of the model's own (paper, Appendix E)."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer
from transformer_lens.hook_points import HookPoint

from circuits.circuit import Circuit
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import Mechanism, checked_pattern
from circuits.model.patterns import pattern_hook
from circuits.problem import Examples
from circuits.roles import Roles

Hook = Callable[[Float[Tensor, "batch head query key"], HookPoint], Float[Tensor, "batch head query key"]]


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
        pattern[:, index] = checked_pattern(mechanism, roles, pattern.shape[-1]).to(pattern.dtype)
    return pattern


def run_ablated(model: HookedTransformer, circuit: Circuit, examples: Examples) -> Float[Tensor, "batch pos d_out"]:
    """The model's outputs on the examples, with the circuit's patterns in place."""
    with ablated(model, circuit, examples.roles):
        return model(examples.inputs)

"""Ablation: replace a model's attention patterns with those of a circuit (paper, Appendix E)."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

from jaxtyping import Float
from torch import Tensor

from circuits.circuit import Circuit, Head
from circuits.entrance import entrance
from circuits.errors import BadInput
from circuits.mechanisms.mechanism import Resample, head_pattern
from circuits.model.layers import check_edits, pattern_hook
from circuits.model.transformer import Transformer, attention_mask, check_inputs, run, windowed
from circuits.roles import Roles
from circuits.task import Examples


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
def ablating(
    model: Transformer, circuit: Circuit, roles: Roles, resampled: Mapping[str, Tensor] | None = None
) -> Iterator[Transformer]:
    """As ``ablated``, for a model that was checked; with the patterns of layers in another run, by their hook points.

    The hooks are those of TransformerLens, which also act on a run from or to a layer.
    """
    check_edits(model)
    roles = windowed(model, roles)
    circuit.check(roles, model.cfg.n_layers, model.cfg.n_heads)
    silent = {head.layer for head in circuit.heads}

    def override(pattern: Float[Tensor, "batch head query key"], hook: Any, layer: int) -> Tensor:
        silent.discard(layer)
        _check_run(pattern, roles)
        pattern = pattern.clone()
        for index, mechanism in circuit.layer(layer):
            if isinstance(mechanism, Resample) and resampled is not None:
                own = resampled[pattern_hook(layer)][:, index]
            else:
                own = head_pattern(Head(layer, index), mechanism, roles.in_layer(layer), pattern.shape[-1])
            pattern[:, index] = own.to(pattern.dtype)
        return pattern

    with model.hooks(fwd_hooks=[(pattern_hook(layer), partial(override, layer=layer)) for layer in sorted(silent)]):
        yield model
    if silent:
        raise BadInput(
            f"the ablation of layers {sorted(silent)} did nothing; "
            "expected the model to be run through them, with its hooks"
        )


def _check_run(pattern: Float[Tensor, "batch head query key"], roles: Roles) -> None:
    """Check that an ablated model is run on whole sequences of the batch that the roles belong to.

    Raises:
        BadInput: it is not.
    """
    n, _, queries, keys = pattern.shape
    if queries != keys:
        raise BadInput(
            f"an ablated model was run on {queries} of {keys} positions, as with a cache of keys; "
            "expected whole sequences (generate with use_past_kv_cache=False)"
        )
    if int(roles.positions.max()) >= keys:
        raise BadInput(f"a role is at position {int(roles.positions.max())}; the model was run on {keys} positions")
    if len(roles) != n:
        raise BadInput(f"the roles belong to {len(roles)} examples; the model was run on {n}")


@entrance
def run_ablated(model: Transformer, circuit: Circuit, examples: Examples) -> Float[Tensor, "batch pos d_out"]:
    """Return the model's outputs on the examples under the circuit's ablation.

    Raises:
        BadInput: as ``ablated``; or a head is resampled, and the examples have no counterfactual inputs.
    """
    seen: Mapping[str, Tensor] = {}
    if layers := {head.layer for head, mechanism in circuit.heads.items() if isinstance(mechanism, Resample)}:
        others = examples.counterfactuals()
        check_inputs(model, others)
        names = [pattern_hook(layer) for layer in layers]
        options = {"names_filter": names, "return_cache_object": False, **attention_mask(others)}
        _, seen = model.run_with_cache(others.inputs, **options)
    with ablating(model, circuit, examples.roles, seen):
        return run(model, examples)

"""A TransformerBridge, layer by layer.

A block of a language model takes more than the residual stream: masks, rotary angles, positions. They are caught in a
plain run, and handed to the block again. The outputs are read by a run of one token whose last residual stream is
replaced, because between the last norm and the outputs may stand soft caps and scales.
"""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from transformers import Cache

from circuits.errors import BadInput
from circuits.model.layers import Edit, EditHeads, Layers, architecture, edited, residual_in
from circuits.model.transformer import Transformer, attention_mask
from circuits.task import Examples

Arguments = tuple[tuple[Any, ...], dict[str, Any]]  # of a block, besides the residual stream: by position, by name


class _Stop(Exception):  # not an error: nothing above is needed
    pass


class BridgeLayers(Layers):
    """A TransformerBridge on a batch of examples."""

    _arguments: tuple[list[Arguments], list[Arguments], int] | None = None  # of each block: of one example, of a batch

    def embed(self) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream that enters layer 0."""
        seen: list[Tensor] = []

        def stop(module: Any, *given: Any) -> None:
            seen.append(residual_in(*given))
            raise _Stop

        with self.model.blocks[0].register_forward_pre_hook(stop, with_kwargs=True), suppress(_Stop):
            self.model(self.examples.inputs, **attention_mask(self.examples))
        return seen[0]

    def block(
        self,
        layer: int,
        residual: Float[Tensor, "run pos d_model"],
        edit: Edit | None = None,
        heads: EditHeads | None = None,
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the residual stream after a layer, with its patterns or heads changed on the way."""
        if self._arguments is None:
            first = torch.zeros(2, dtype=torch.long, device=residual.device)
            alike = self.examples.roles.valid is None or len(self.examples) == 1
            batch = self.examples.take(first) if alike else self.examples
            self._arguments = _caught(self.model, batch.take(slice(0, 1))), _caught(self.model, batch), len(batch)
        one, all_, n = self._arguments
        by_place, by_name = _repeated(one[layer], all_[layer], n, len(residual))
        with edited(self.model.blocks[layer], edit, heads):
            after = self.model.blocks[layer](residual, *by_place, **by_name)
        return after[0] if isinstance(after, tuple) else after

    def read(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_out"]:
        """Return the outputs, from any rows of the residual stream after the last layer."""

        def instead(module: Any, by_place: tuple[Any, ...], by_name: dict[str, Any]) -> Arguments:
            others = {name: value for name, value in by_name.items() if name != "hidden_states"}
            return (rows[:, None], *by_place[1:]), others

        last, token = getattr(self.model, "ln_final", None) or self.model.unembed, self.examples.inputs[:1, :1]
        with last.register_forward_pre_hook(instead, with_kwargs=True):
            try:
                with _called_instead(self.model, _unchanged):
                    outputs: Tensor = self.model(token)
            except Exception:  # of any library: an architecture that cannot do without what its blocks return
                outputs = self.model(token)
        return outputs[:, 0]


@torch.no_grad()
def check_edits_of_bridge(model: Transformer) -> bool:
    """Check on a few tokens that changes of the attention patterns have an effect, in every layer that writes anything.

    Returns whether all layers could be checked: a layer that writes nothing may do so later.

    Raises:
        BadInput: they have none, or a layer has no attention patterns.
    """
    all_checked = True
    for layer, block in enumerate(model.blocks):
        if getattr(getattr(block, "attn", None), "hook_pattern", None) is None:
            raise BadInput(f"{architecture(model)}: layer {layer} has no attention patterns; expected some in all")
        heads, written, outputs = _attending(model, block, None)
        if layer == 0 and not torch.equal(outputs, _attending(model, block, None)[2]):
            raise BadInput(f"{architecture(model)}: its outputs for the same tokens differ from run to run")
        others, _, changed = _attending(model, block, lambda pattern: torch.eye(4).to(pattern).expand_as(pattern))
        compared = bool(outputs.isfinite().all() and written.any())
        all_checked = all_checked and compared
        if compared and torch.equal(outputs, changed):
            dropped = heads.any() and torch.equal(heads, others)
            lost = "TransformerLens drops them" if dropped else "it writes the same, wherever its heads attend"
            said = f"changes of the attention patterns of layer {layer} have no effect: {lost}"
            raise BadInput(f"{architecture(model)}: {said}; expected an architecture whose attention can be replaced")
    return all_checked


def _attending(model: Transformer, block: Any, edit: Edit | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a layer's heads computed on four tokens, what the layer wrote, and the model's outputs."""
    tokens = torch.arange(4, device=next(model.parameters()).device)[None] % model.cfg.d_vocab
    seen: list[Tensor] = []
    with ExitStack() as stack:
        for point in (block.attn.hook_z, block.attn.hook_out):
            stack.enter_context(point.register_forward_hook(lambda module, inputs, value: seen.append(value)))
        stack.enter_context(edited(block, edit))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # TransformerLens 4 warns of changes that it drops
        outputs: Tensor = model(tokens)
    if len(seen) < 2:
        raise BadInput(f"{architecture(model)}: its attention runs without hooks; expected hook_z and hook_out")
    return seen[0], seen[1], outputs


def _caught(model: Transformer, examples: Examples) -> list[Arguments]:
    """Return the arguments of each block, besides the residual stream.

    They do not depend on it, so no block runs, unless an architecture cannot do without what its blocks return.
    """
    try:
        return _arguments(model, examples, run=False)
    except Exception:  # of any library
        return _arguments(model, examples, run=True)


def _arguments(model: Transformer, examples: Examples, run: bool) -> list[Arguments]:
    caught: list[Arguments] = []

    def keep(*by_place: Any, own: Any, **by_name: Any) -> Any:
        caught.append((by_place[1:], {name: value for name, value in by_name.items() if name != "hidden_states"}))
        if len(caught) == len(model.blocks):
            raise _Stop
        return own(*by_place, **by_name) if run else _unchanged(*by_place, own=own, **by_name)

    with _called_instead(model, keep), torch.no_grad(), suppress(_Stop):
        model(examples.inputs, **attention_mask(examples))
    return caught


def _unchanged(*by_place: Any, own: Any, **by_name: Any) -> Tensor:
    return residual_in(by_place, by_name)


@contextmanager
def _called_instead(model: Transformer, other: Any) -> Iterator[None]:
    """Call another function instead of each block, with the block's arguments and, as ``own``, what it would do."""
    with ExitStack() as stack:
        for block in model.blocks:
            before = vars(block).get("forward")
            stack.callback(vars(block).__setitem__ if before else vars(block).pop, "forward", before)
            vars(block)["forward"] = partial(other, own=block.forward)
        yield


def _repeated(one: Any, batch: Any, n: int, n_runs: int) -> Any:
    """Return what a block is called with, for runs of the same ``n`` examples, and without a cache of keys.

    A tensor belongs to the examples if it is ``n`` times as long for all of them as for the first. (It may hold the
    heads of each example side by side.)
    """
    if isinstance(batch, tuple):
        return tuple(_repeated(*both, n, n_runs) for both in zip(one, batch, strict=True))
    if isinstance(batch, dict):
        return {name: name != "use_cache" and _repeated(one[name], value, n, n_runs) for name, value in batch.items()}
    if isinstance(batch, Tensor) and batch.ndim > 1 and len(batch) == n * len(one):
        return batch.repeat(-(-n_runs // n), *[1] * (batch.ndim - 1))[: n_runs * len(one)]
    return None if isinstance(batch, Cache) else batch

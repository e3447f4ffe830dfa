"""A TransformerBridge, layer by layer.

A block of a language model takes more than the residual stream: masks, rotary angles, positions. They are caught in a
plain run, and handed to the block again. The outputs are read by a run of one token whose last residual stream is
replaced, because between the last norm and the outputs may stand soft caps and scales.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import Cache

from circuits.errors import BadInput
from circuits.model.hooked import HOOKING, edited, edited_heads, edited_mlp
from circuits.model.layers import Edit, EditHeads, EditMLP, Layers, architecture
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

        def stop(residual: Tensor, arguments: Arguments) -> None:
            seen.append(residual)
            raise _Stop

        with _watched(self.model.blocks[0], stop), suppress(_Stop):
            self.model(self.examples.inputs, **attention_mask(self.examples))
        return seen[0]

    def block(
        self,
        layer: int,
        residual: Float[Tensor, "run pos d_model"],
        edit: Edit | None = None,
        heads: EditHeads | None = None,
        mlp: EditMLP | None = None,
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the residual stream after a layer, with its patterns, heads or MLP changed on the way."""
        if self._arguments is None:
            first = torch.zeros(2, dtype=torch.long, device=residual.device)
            alike = self.examples.roles.valid is None or len(self.examples) == 1
            batch = self.examples.take(first) if alike else self.examples
            self._arguments = _caught(self.model, batch.take(slice(0, 1))), _caught(self.model, batch), len(batch)
        one, all_, n = self._arguments
        block = self.model.blocks[layer]
        by_place, by_name = _repeated(one[layer], all_[layer], n, len(residual))
        with edited(block.attn.hook_pattern, edit), edited_heads(block.attn, heads), edited_mlp(block, mlp):
            found = block(residual, *by_place, **by_name)
        return found[0] if isinstance(found, tuple) else found

    def read(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_out"]:
        """Return the outputs, from any rows of the residual stream after the last layer."""
        last = getattr(self.model, "ln_final", None) or self.model.unembed
        with _watched(last, lambda residual, arguments: rows[:, None]):
            found: Tensor = self.model(self.examples.inputs[:1, :1])
        return found[:, 0]


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
        heads, written, outputs = _attending(model, block.attn, None)
        if layer == 0 and not torch.equal(outputs, _attending(model, block.attn, None)[2]):
            raise BadInput(f"{architecture(model)}: its outputs for the same tokens differ from run to run")
        others, _, changed = _attending(model, block.attn, lambda own: torch.eye(4).to(own).expand_as(own))
        all_checked = all_checked and bool(outputs.isfinite().all() and written.any())
        if outputs.isfinite().all() and torch.equal(outputs, changed) and written.any():
            dropped = heads.any() and torch.equal(heads, others)
            raise BadInput(
                f"{architecture(model)}: changes of the attention patterns of layer {layer} have no effect: "
                f"{'TransformerLens drops them' if dropped else 'it writes the same, wherever its heads attend'}; "
                "expected an architecture whose attention can be replaced"
            )
    return all_checked


def _attending(model: Transformer, attention: Any, edit: Edit | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return what a layer's heads computed on four tokens, what the layer wrote, and the model's outputs."""
    tokens = torch.arange(4, device=next(model.parameters()).device)[None] % model.cfg.d_vocab
    seen: list[Tensor] = []

    def see(own: Tensor) -> Tensor:
        seen.append(own)
        return own

    with ExitStack() as stack:
        for point, own in ((attention.hook_pattern, edit), (attention.hook_z, see), (attention.hook_out, see)):
            stack.enter_context(edited(point, own))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # TransformerLens 4 warns of changes that it drops
        outputs: Tensor = model(tokens)
    return seen[0], seen[1], outputs


def _caught(model: Transformer, examples: Examples) -> list[Arguments]:
    """Return the arguments of each block, besides the residual stream, in a plain run."""
    caught: dict[int, Arguments] = {}

    def keep(layer: int) -> Callable[[Tensor, Arguments], None]:
        return lambda residual, arguments: caught.update({layer: arguments})

    with ExitStack() as stack, torch.no_grad():
        for layer, block in enumerate(model.blocks):
            stack.enter_context(_watched(block, keep(layer)))
        model(examples.inputs, **attention_mask(examples))
    return [caught[layer] for layer in range(len(caught))]


def _repeated(one: Any, batch: Any, n: int, n_runs: int) -> Any:
    """Return what a block is called with, for runs of the same ``n`` examples, and without a cache of keys.

    A tensor belongs to the examples if it is ``n`` times as long for all of them as for the first. (It may hold the
    heads of each example side by side.)
    """
    if isinstance(batch, tuple):
        return tuple(_repeated(*both, n, n_runs) for both in zip(one, batch, strict=True))
    if isinstance(batch, dict):
        return {name: name != "use_cache" and _repeated(one[name], own, n, n_runs) for name, own in batch.items()}
    if isinstance(batch, Tensor) and batch.ndim > 1 and len(batch) == n * len(one):
        return batch.repeat(-(-n_runs // n), *[1] * (batch.ndim - 1))[: n_runs * len(one)]
    return None if isinstance(batch, Cache) else batch


@contextmanager
def _watched(module: nn.Module, see: Callable[[Tensor, Arguments], Tensor | None]) -> Iterator[None]:
    """Call a function with what a module is called with in this thread; a tensor that it returns goes in instead."""
    thread = threading.get_ident()

    def watch(module: nn.Module, by_place: tuple[Any, ...], by_name: dict[str, Any]) -> Any:
        if threading.get_ident() != thread:
            return None
        rest = {name: own for name, own in by_name.items() if name != "hidden_states"}
        residual = by_place[0] if by_place else by_name["hidden_states"]
        instead = see(residual, (by_place[1:], rest))
        return None if instead is None else ((instead, *by_place[1:]), rest)

    with HOOKING:
        handle = module.register_forward_pre_hook(watch, with_kwargs=True)
    try:
        yield
    finally:
        with HOOKING:
            handle.remove()

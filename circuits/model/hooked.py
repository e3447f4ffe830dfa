"""A HookedTransformer, layer by layer."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from circuits.errors import BadInput
from circuits.model.block import after_mlp, is_standard, normalised
from circuits.model.layers import Edit, EditHeads, EditMLP, Layers
from circuits.model.transformer import attention_mask

# From this size on, TransformerLens's transposed copy of the unembedding in every run takes longer than the product.
LARGE_VOCABULARY = 2**12
HOOKING = threading.Lock()  # several threads add hooks to one model


class HookedLayers(Layers):
    """A HookedTransformer on a batch of examples."""

    def embed(self) -> Float[Tensor, "example pos d_model"]:
        """Return the residual stream that enters layer 0.

        Raises:
            BadInput: the model adds its positional embeddings in every layer (shortformer).
        """
        if self.model.cfg.positional_embedding_type == "shortformer":
            raise BadInput("shortformer positional embeddings are not supported")
        found: Tensor = self.model(self.examples.inputs, stop_at_layer=0, **attention_mask(self.examples))
        return found

    def block(
        self,
        layer: int,
        residual: Float[Tensor, "run pos d_model"],
        edit: Edit | None = None,
        heads: EditHeads | None = None,
        mlp: EditMLP | None = None,
    ) -> Float[Tensor, "run pos d_model"]:
        """Return the residual stream after a layer, with its patterns, heads or MLP changed on the way."""
        block = self.model.blocks[layer]
        mask = attention_mask(self.examples)
        if mask:
            mask = {name: own.repeat(len(residual) // len(own), 1) for name, own in mask.items()}
        with edited(block.attn.hook_pattern, edit), edited_heads(block.attn, heads), edited_mlp(block, mlp):
            # in half precision, other orders of the same sums would differ too much in deep models
            if not is_standard(self.model.cfg) or residual.dtype in (torch.bfloat16, torch.float16):
                found: Tensor = block(residual, **mask)
                return found
            normal = normalised(block.ln1, residual)
            middle = residual + block.attn(query_input=normal, key_input=normal, value_input=normal, **mask)
            if mlp is None:
                return after_mlp(block, middle.flatten(0, 1)).reshape(residual.shape)
            return middle + block.mlp(normalised(block.ln2, middle))

    def read(self, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_out"]:
        """Return the outputs, from any rows of the residual stream after the last layer."""
        model, unembed = self.model, self.model.unembed
        if unembed.W_U.shape[1] >= LARGE_VOCABULARY and not getattr(model.cfg, "output_logits_soft_cap", 0) > 0:
            final = normalised(model.ln_final, rows) if hasattr(model, "ln_final") else rows
            return torch.addmm(unembed.b_U, final, unembed.W_U)
        found: Tensor = model(rows[None], start_at_layer=model.cfg.n_layers)[0]
        return found


@contextmanager
def edited(point: nn.Module, edit: Edit | None) -> Iterator[None]:
    """Change what goes through a hook point in this thread, within a ``with`` block.

    It is a plain PyTorch hook: TransformerLens would remove all hooks from the model, also those of other threads.

    Raises:
        BadInput: nothing went through the hook point.
    """
    if edit is None:
        yield
        return
    thread, called = threading.get_ident(), False

    def override(module: nn.Module, inputs: tuple[Tensor, ...], pattern: Tensor) -> Tensor:
        nonlocal called
        if threading.get_ident() != thread:
            return pattern
        called = True
        return edit(pattern).contiguous()  # some models call view

    with HOOKING:
        handle = point.register_forward_hook(override)
    try:
        yield
    finally:
        with HOOKING:
            handle.remove()
    if not called:
        raise BadInput("the model was run without its hooks, so that nothing was ablated; expected an uncompiled model")


@contextmanager
def edited_heads(attention: Any, edits: EditHeads | None) -> Iterator[None]:
    """Change the queries, keys, values or outputs of heads in this thread, within a ``with`` block."""
    d_head = attention.cfg.d_head if hasattr(attention, "cfg") else attention.config.d_head

    def by_head(value: Tensor, edit: Edit) -> Tensor:  # some architectures have all heads side by side
        return edit(value.reshape(*value.shape[:2], -1, d_head)).reshape(value.shape)

    with ExitStack() as hooks:
        for name, edit in (edits or {}).items():
            hooks.enter_context(edited(getattr(attention, f"hook_{name}"), partial(by_head, edit=edit)))
        yield


@contextmanager
def edited_mlp(block: Any, edit: EditMLP | None) -> Iterator[None]:
    """Change the output of a layer's MLP in this thread, within a ``with`` block."""
    if edit is None:
        yield
        return
    thread = threading.get_ident()

    def override(module: nn.Module, by_place: tuple[Any, ...], by_name: dict[str, Any], output: Any) -> Any:
        if threading.get_ident() != thread:
            return output
        into = by_place[0] if by_place else by_name["hidden_states"]
        if isinstance(output, tuple):  # a mixture of experts also returns what its router chose
            return (edit(into, output[0]), *output[1:])
        return edit(into, output)

    with HOOKING:
        handle = block.mlp.register_forward_hook(override, with_kwargs=True)
    try:
        yield
    finally:
        with HOOKING:
            handle.remove()

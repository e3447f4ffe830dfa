"""What the engine calls a transformer, a HookedTransformer or a TransformerBridge; its batches, inputs and windows.

No file of ``circuits`` outside this folder imports TransformerLens; TransformerLens 4 has no HookedTransformer.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from jaxtyping import Float, Int

from circuits.errors import BadInput
from circuits.roles import Roles
from circuits.task import Examples, HasAll
from circuits.utils.lazy import Deferred, torch

if TYPE_CHECKING:
    from circuits.model import hooked_transformer as hooked_transformer
else:
    hooked_transformer = Deferred("circuits.model.hooked_transformer")

# Sequence positions run through a layer at once: enough to keep the processor busy, small enough for its caches.
POSITIONS_AT_ONCE = 2**13
# Entries of the attention patterns of a layer, or of the outputs, at once: 256 MiB in single precision.
ENTRIES_AT_ONCE = 2**26
AT_ONCE: ContextVar[int | None] = ContextVar("at once", default=None)  # the most sequences at once, if it was chosen


@runtime_checkable
class Transformer(Protocol, metaclass=HasAll):
    """A HookedTransformer or a TransformerBridge.

    Attributes:
        cfg: its sizes, under TransformerLens's names (``n_layers``, ``n_heads``, ``d_model``, ...).
        blocks, tokenizer: its layers; its tokenizer, or None.
        hooks: adds hooks within a ``with`` block.
        run_with_cache: returns the outputs and the activations.
    """

    cfg: Any
    blocks: Any
    tokenizer: Any
    hooks: Any
    run_with_cache: Any

    if TYPE_CHECKING:  # and more, by architecture

        def __getattr__(self, name: str) -> Any: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs, ``[batch, pos, d_vocab_out]``."""


def is_bridge(model: Transformer) -> bool:
    """Whether a model is a TransformerBridge."""
    return any(kind.__name__ == "TransformerBridge" for kind in type(model).__mro__)


def attention_mask(examples: Examples) -> dict[str, torch.Tensor]:
    """Return the keyword arguments that tell a model which positions are padding; none if there is no padding."""
    valid = examples.roles.valid
    return {} if valid is None else {"attention_mask": valid.long()}


def check_inputs(model: Transformer, examples: Examples) -> None:
    """Check that a model can read some examples.

    Raises:
        BadInput: they are on another device or too long; only one of model and roles has a causal mask; or the model
            reads tokens, and they are none of its tokens.
    """
    inputs, cfg = examples.inputs, model.cfg
    device = next(model.parameters()).device
    if inputs.device != device:
        raise BadInput(f"the inputs are on {inputs.device}, the model on {device}; expected one device (Examples.to)")
    if inputs.shape[1] > cfg.n_ctx:
        raise BadInput(f"the inputs have {inputs.shape[1]} positions; the model reads at most {cfg.n_ctx}")
    causal = getattr(cfg, "attention_dir", "causal") == "causal"
    if causal != examples.roles.causal:
        has = "a causal mask" if causal else "attention in both directions"
        raise BadInput(f"the model has {has}; expected roles with causal={causal}")
    if not causal and examples.roles.valid is not None and not is_bridge(model):
        raise BadInput("padding in both directions: TransformerLens 3 does not mask it; expected a TransformerBridge")
    if not is_bridge(model) and type(model.embed).__name__ != "Embed":
        return  # vectors
    if inputs.ndim != 2 or inputs.is_floating_point():
        raise BadInput(f"the model reads tokens [batch, pos]; got {[*inputs.shape]} of {inputs.dtype}")
    low, high = (int(token) for token in inputs.aminmax())
    if low < 0 or high >= cfg.d_vocab:
        raise BadInput(f"token {low if low < 0 else high} is none of the model's; expected 0 to {cfg.d_vocab - 1}")
    if not is_bridge(model) and examples.roles.valid is None:
        _check_padding(model, inputs)


def _check_padding(model: Transformer, tokens: Int[torch.Tensor, "batch pos"]) -> None:
    """Check that no example begins with padding, which a HookedTransformer masks by itself where nothing is declared;
    BadInput if one does.
    """
    if getattr(model.tokenizer, "padding_side", "right") != "left" or model.tokenizer.pad_token_id is None:
        return
    from transformer_lens.utilities import get_attention_mask

    masked = get_attention_mask(model.tokenizer, tokens, model.cfg.default_prepend_bos) == 0
    if masked.any():
        first = int(masked.any(dim=1).nonzero()[0])
        raise BadInput(
            f"example {first} begins with {int(masked[first].sum())} tokens of padding, which the model masks; "
            "expected the roles to name the other tokens (Roles.of(..., valid=attention_mask))"
        )


def run(model: Transformer, examples: Examples) -> Float[torch.Tensor, "batch pos d_out"]:
    """Return the model's outputs on some examples, with the hooks that it has at the moment.

    Raises:
        BadInput: as ``check_inputs``.
    """
    check_inputs(model, examples)
    outputs: torch.Tensor = model(examples.inputs, **attention_mask(examples))
    return outputs


def outputs_at_a_position(cfg: Any) -> int:
    """Return the number of outputs at a position."""
    return int(cfg.d_vocab_out if cfg.d_vocab_out > 0 else cfg.d_vocab)


def sequences_at_once(n_heads: int, n_positions: int, n_outputs: int = 1) -> int:
    """Return the number of sequences that run at once; ``n_outputs`` is the number of outputs at a position."""
    entries = ENTRIES_AT_ONCE // max(n_heads * n_positions, n_outputs)
    return max(1, min(POSITIONS_AT_ONCE // n_positions, entries // n_positions, AT_ONCE.get() or POSITIONS_AT_ONCE))


def spread(n: int, most: int, n_positions: int, cfg: Any) -> Int[torch.Tensor, " few"]:
    """Return the indices of a few of ``n`` examples, from the first to the last: at most ``most``, at least two.

    There are fewer of long sequences and large vocabularies: their outputs take a quarter of ``ENTRIES_AT_ONCE``.
    """
    few = max(2, min(most, ENTRIES_AT_ONCE // 4 // (n_positions * outputs_at_a_position(cfg))))
    return torch.linspace(0, n - 1, min(few, n)).long()


def windowed(model: Transformer, roles: Roles) -> Roles:
    """Return the roles with the windows of a model's layers."""
    of_layers = windows(model)
    return replace(roles, windows=of_layers if any(of_layers) else ())


def windows(model: Transformer) -> tuple[int | None, ...]:
    """Return how many positions a position sees in every layer, itself included; None in a layer without a window."""
    config = model.cfg
    if is_bridge(model):
        config = getattr(model.original_model, "config", config)
        config = config.get_text_config() if hasattr(config, "get_text_config") else config
    if not getattr(config, "use_local_attn", True) or getattr(config, "attention_dir", "causal") != "causal":
        return (None,) * model.cfg.n_layers

    def given(*names: str) -> Any:
        return next((value for name in names if (value := getattr(config, name, None))), None)

    # Hugging Face's names, then those of GPT-Neo and of TransformerLens. Without kinds of layers, all are alike.
    kinds = given("layer_types", "attention_layers", "attn_types") or ["sliding_attention"] * model.cfg.n_layers
    sizes = {"sliding_attention": given("sliding_window"), "local": given("window_size")}
    return tuple(sizes.get(kind) for kind in kinds)

"""Sliding windows: the layers of a model in which a position sees only itself and some positions before it."""

from dataclasses import replace
from typing import Any

from circuits.model.transformer import Transformer, is_bridge
from circuits.roles import Roles


def windowed(model: Transformer, roles: Roles) -> Roles:
    """Return the roles with the windows of a model's layers."""
    own = windows(model)
    return replace(roles, windows=own if any(own) else ())


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

"""What a transformer is at the moment: its mode, its hooks, its modules and its configuration."""

from __future__ import annotations

import weakref
from collections.abc import Hashable
from typing import Any

from circuits.errors import BadInput
from circuits.model.transformer import Transformer
from circuits.utils.lazy import torch

Learned = dict[Hashable, Any]
_learned: weakref.WeakKeyDictionary[Transformer, tuple[Hashable, Learned]] = weakref.WeakKeyDictionary()


def check_state(model: Any) -> None:
    """Check that a model can be ablated as it is now, and forget what was learned of it as it was before.

    Raises:
        BadInput: it is no transformer; it is compiled, in train mode with dropout, or has hooks or spliced modules, so
            that not every computation here would follow them; or two of its layers are one module.
    """
    if isinstance(model, type) or not isinstance(model, Transformer):
        given = f"the text {model!r:.60}" if isinstance(model, str) else f"of type {type(model).__name__}"
        raise BadInput(
            f"the model is {f'the class {model.__name__}' if isinstance(model, type) else given}; expected a "
            "HookedTransformer or a TransformerBridge (circuits.model.from_pretrained loads one by its name)"
        )
    state = _state(model)
    if model not in _learned or _learned[model][0] != state:
        _check(model)
        _learned[model] = state, {}


def learned(model: Transformer) -> Learned:
    """Return what was learned of a model, to be read and written; empty if the model has changed since."""
    if model not in _learned:
        check_state(model)
    return _learned[model][1]


def _state(model: Transformer) -> Hashable:
    everywhere, plain = torch.nn.modules.module, bool | int | float | str | list | tuple
    modules = [
        (id(module), id(vars(module).get("forward")), module.training, _compiled(module), _hooks(module))
        for module in model.modules()
    ]
    configs = (model.cfg, getattr(getattr(model, "original_model", None), "config", None))
    values = [value for one in configs for value in getattr(one, "__dict__", {}).values()]
    fields = [repr(value) for value in values if isinstance(value, plain)]
    return *modules, *fields, *everywhere._global_forward_hooks, *everywhere._global_forward_pre_hooks


def _hooks(module: torch.nn.Module) -> tuple[int, ...]:
    """Return the ids of a module's hooks, without those that a library needs to run a bridge."""
    hooks = (*module._forward_hooks.items(), *module._forward_pre_hooks.items())
    return tuple(key for key, hook in hooks if not _is_of_a_library(hook))


def _is_of_a_library(hook: Any) -> bool:
    """Whether a library added a hook. A hook point wraps the functions of ``add_hook``."""
    if getattr(hook, "__module__", None) == "transformer_lens.hook_points":
        free = dict(zip(hook.__code__.co_freevars, hook.__closure__ or (), strict=True))
        added = free["hook"].cell_contents if "hook" in free else None
        hook = getattr(added, "func", added)
    return str(getattr(hook, "__module__", "")).startswith(("transformers.", "transformer_lens."))


def _compiled(module: torch.nn.Module) -> bool:
    return module._compiled_call_impl is not None or type(module).__name__ == "OptimizedModule"


def _check(model: Transformer) -> None:
    if len({id(block) for block in model.blocks}) < len(model.blocks):
        raise BadInput("two layers of the model are one module; expected a module for each layer")
    for name, module in model.named_modules():
        if _compiled(module):
            raise BadInput("the model is compiled, so that it ignores hooks; expected the model before torch.compile")
        if _hooks(module):
            where = name.replace("_original_component.", "") or "its output"
            raise BadInput(
                f"the model has a hook at {where}; expected none: leave the with block that added it, or remove it "
                "(handle.remove(), or model.reset_hooks(including_permanent=True))"
            )
        kind = type(module).__name__
        if name.rsplit(".", 1)[-1].startswith("hook_") and kind != "HookPoint":
            raise BadInput(f"{name} of the model is a {kind}; expected a hook point with nothing in it")
        if module.training and _drops(module):
            raise BadInput("the model is in train mode and has dropout; expected model.eval()")


def _drops(module: torch.nn.Module) -> bool:
    """Whether a module sets something to zero at random in train mode, by its own numbers or those of its config."""
    numbers = {**vars(module), **getattr(getattr(module, "config", None), "__dict__", {})}
    if "Dropout" in type(module).__name__:
        numbers["dropout"] = numbers.get("p")
    elsewhere = ("summary", "classifier")  # of heads that a language model does not have
    rates = (rate for name, rate in numbers.items() if "drop" in name and not name.startswith(elsewhere))
    return any(isinstance(rate, float) and rate > 0 for rate in rates)
